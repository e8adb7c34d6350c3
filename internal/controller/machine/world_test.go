package machine

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	migrationsv1 "github.com/berth-vm/berth/api/migrations/v1alpha1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/controller/relocate"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/testing/faults"
	"github.com/berth-vm/berth/internal/testing/remember"
)

// world is a cluster of one machine.
type world struct {
	t        *testing.T
	sc       scenario
	api      client.Client // without faults: what the cluster itself uses
	r        *Controllers
	keeper   *podend.Keeper
	moves    *relocate.Reconciler
	clock    *clocktest.FakePassiveClock
	faults   faults.Injector
	made     int
	guests   int  // that have been started
	keeps    bool // the guest gives no disk back
	backedUp bool // its disks are held for a backup
	stay     bool // claims do not follow a guest that moved
	// failing is why every try to fill a volume fails, as its Running condition says; empty: none does.
	failing string
	data    contents
	events  *events.FakeRecorder
	asked   int   // how many of the scenario's asks were made
	taped   *tape // what is kept of it while it runs; nil: nothing
	// follows is the run that a disturbed one is compared with; joined: it is the same again.
	follows *tape
	joined  bool
}

var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Secret{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaim{},
		&corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolume{}, &corev1.PersistentVolumeList{}, &corev1.Node{}, &corev1.NodeList{}, &corev1.Event{}, &corev1.EventList{}, &corev1.Namespace{}, &corev1.NamespaceList{})
	s.AddKnownTypes(storagev1.SchemeGroupVersion, &storagev1.StorageClass{}, &storagev1.StorageClassList{})
	s.AddKnownTypes(appsv1.SchemeGroupVersion, &appsv1.ControllerRevision{}, &appsv1.ControllerRevisionList{})
	s.AddKnownTypes(cdiv1.SchemeGroupVersion, &cdiv1.CDI{}, &cdiv1.CDIList{}, &cdiv1.DataVolume{}, &cdiv1.DataVolumeList{}, &cdiv1.StorageProfile{}, &cdiv1.StorageProfileList{},
		&cdiv1.CDIConfig{}, &cdiv1.CDIConfigList{}, &cdiv1.VolumeCloneSource{}, &cdiv1.VolumeCloneSourceList{})
	s.AddKnownTypes(policyv1.SchemeGroupVersion, &policyv1.PodDisruptionBudget{}, &policyv1.PodDisruptionBudgetList{})
	metav1.AddToGroupVersion(s, policyv1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, storagev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, appsv1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, cdiv1.SchemeGroupVersion)
	if err := errors.Join(kubevirt.AddToScheme(s), snapshotv1.AddToScheme(s), accessv1.AddToScheme(s), migrationsv1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
})

func newWorld(t *testing.T, sc scenario) *world {
	t.Helper()
	w := &world{t: t, sc: sc, clock: clocktest.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		events: events.NewFakeRecorder(10000)}
	objects := []client.Object{sc.machine(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node2"}}}
	if sc.class {
		objects = append(objects, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "local.example.com",
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)})
	}
	w.serve(objects)
	return w
}

// serve gives the world an API server that has these objects, and a controller that has just been started.
func (w *world) serve(objects []client.Object) {
	build := fake.NewClientBuilder().WithScheme(scheme()).WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithReturnManagedFields().
		WithStatusSubresource(&kubevirt.VirtualMachine{}, &kubevirt.VirtualMachineInstance{}, &kubevirt.VirtualMachineInstanceMigration{}, &cdiv1.DataVolume{}, &corev1.Pod{},
			&corev1.PersistentVolumeClaim{}).WithObjects(objects...)
	for _, i := range cacheindex.All() {
		build = build.WithIndex(i.Object, i.Field, i.Of)
	}
	base := remember.Client(build.Build())
	w.api = base
	writer := cluster.New(w.faults.Client(base, w.admit), w.events, w.clock)
	disks := diskstate.Reader{Cached: base, Live: base, Data: true, Records: diskaccess.New(base, base, writer)}
	w.r = &Controllers{Read: &observed.Reader{Reader: disks, Options: Options{Image: "launcher", Emulate: true}, Ask: w.launcherSays}}
	w.control(writer)
}

// control starts controllers that write with writer.
func (w *world) control(writer *cluster.Writer) {
	w.r = New(w.r.Read, writer, w.clock)
	w.moves = &relocate.Reconciler{Reader: w.api, Live: w.api, Cluster: writer, Records: w.r.Read.Records}
	w.keeper = &podend.Keeper{Reader: w.api, Live: w.api, Cluster: writer, Finalizer: render.LauncherEnd, Before: w.r.Releases.Ended}
}

// admit gives an object what the API server would. Pods are named by their instance, and pods of disks by the launcher, so
// that those are to be told from each other in what is left.
func (w *world) admit(obj client.Object) error {
	w.made++
	uid := fmt.Sprintf("%T-%d", obj, w.made)
	switch o := obj.(type) {
	case *kubevirt.VirtualMachineInstance:
		uid = fmt.Sprintf("run%d", w.guests)
	case *corev1.Pod:
		uid = fmt.Sprintf("%x-%s", w.guests, o.Name)
	case *kubevirt.VirtualMachineInstanceMigration:
		uid = fmt.Sprintf("%x", sha256.Sum256([]byte(o.Name)))
	}
	obj.SetUID(types.UID(uid))
	obj.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
	return nil
}

// turn simulates the other programs of the cluster; it returns whether they did anything. It does one thing at a time, so that the
// controller sees every state there is.
func (w *world) turn() bool {
	return w.collect() || w.reclaim() || w.fill() || w.schedule() || w.kubelet()
}

// collect is the garbage collector: what belongs to something that is gone goes.
func (w *world) collect() bool {
	ctx := context.Background()
	var pods corev1.PodList
	w.must(w.api.List(ctx, &pods))
	for i := range pods.Items {
		p := &pods.Items[i]
		owner := metav1.GetControllerOf(p)
		if owner == nil {
			continue // somebody else's
		}
		var gone bool
		switch owner.Kind {
		case "VirtualMachineInstanceMigration":
			o, err := cluster.Get[kubevirt.VirtualMachineInstanceMigration](ctx, w.api, ns, owner.Name)
			w.must(err)
			gone = o == nil || o.UID != owner.UID
		case "Pod":
			o, err := cluster.Get[corev1.Pod](ctx, w.api, ns, owner.Name)
			w.must(err)
			gone = o == nil || o.UID != owner.UID
		default:
			o, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, w.api, ns, owner.Name)
			w.must(err)
			gone = o == nil || o.UID != owner.UID
		}
		if gone && p.DeletionTimestamp == nil {
			w.must(w.api.Delete(ctx, p))
			return true
		}
	}
	if w.vm() != nil {
		return false
	}
	if i := w.instance(); i != nil && i.DeletionTimestamp == nil {
		w.must(w.api.Delete(ctx, i))
		return true
	}
	var volumes cdiv1.DataVolumeList
	w.must(w.api.List(ctx, &volumes))
	for i := range volumes.Items {
		w.must(w.api.Delete(ctx, &volumes.Items[i]))
		return true
	}
	return false
}

// fill is the data side: a claim for each volume, held or not, and then its data.
func (w *world) fill() bool {
	ctx := context.Background()
	var volumes cdiv1.DataVolumeList
	w.must(w.api.List(ctx, &volumes))
	for i := range volumes.Items {
		v := &volumes.Items[i]
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, w.api, ns, v.Name)
		w.must(err)
		var next cdiv1.DataVolumePhase
		switch {
		case c == nil:
			if v.Annotations[names.PrePopulated] == v.Name {
				continue
			}
			w.must(w.api.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v.Name, UID: types.UID(v.Name + "-claim")},
				Spec:   corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{w.accessMode()}, StorageClassName: w.class()},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}))
			return true
		case c.Spec.VolumeName != "" && c.Status.Phase != corev1.ClaimBound:
			continue // it is its volume's to be given
		case len(c.OwnerReferences) > 0:
			next = cdiv1.Pending // it is somebody else's
		case c.Status.Phase != corev1.ClaimBound && w.sc.held:
			next = cdiv1.WaitForFirstConsumer
		case c.Status.Phase != corev1.ClaimBound:
			w.bind(c)
			w.place(c, "node1")
			return true
		case w.sc.broken:
			next = cdiv1.Failed
		case w.failing != "":
			next = cdiv1.ImportInProgress
			v.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: w.failing}}
		default:
			next = map[cdiv1.DataVolumePhase]cdiv1.DataVolumePhase{
				cdiv1.ImportScheduled: cdiv1.ImportInProgress, cdiv1.ImportInProgress: cdiv1.Succeeded, cdiv1.Succeeded: cdiv1.Succeeded,
			}[v.Status.Phase]
			if next == "" {
				next = cdiv1.ImportScheduled
			}
			v.Status.Conditions = nil
		}
		if next != v.Status.Phase {
			v.Status.Phase = next
			w.must(w.api.Status().Update(ctx, v))
			return true
		}
	}
	return false
}

// bind gives a claim a volume.
func (w *world) bind(c *corev1.PersistentVolumeClaim) {
	ctx := context.Background()
	w.must(w.api.Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + c.Name, UID: types.UID("pv-" + c.Name)},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "local.example.com", VolumeHandle: "volume of " + c.Name}}}}))
	c.Spec.VolumeName = "pv-" + c.Name
	w.must(w.api.Update(ctx, c))
	c.Status.Phase = corev1.ClaimBound
	w.must(w.api.Status().Update(ctx, c))
}

// populate is the populator of clones: what was on the source is on the claim.
func (w *world) populate(c *corev1.PersistentVolumeClaim) {
	if c.Spec.DataSourceRef == nil {
		return
	}
	ctx := context.Background()
	from, err := cluster.Get[cdiv1.VolumeCloneSource](ctx, w.api, ns, c.Spec.DataSourceRef.Name)
	w.must(err)
	source, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, w.api, ns, from.Spec.Source.Name)
	w.must(err)
	w.data.on[w.handle(c)] = w.data.on[w.handle(source)]
	c.Annotations = map[string]string{names.PopulatedFor: c.Name}
	w.must(w.api.Update(ctx, c))
}

// place notes where a volume is, of a class whose volumes are on nodes.
func (w *world) place(c *corev1.PersistentVolumeClaim, at string) {
	if !w.sc.homes {
		return
	}
	pv, err := cluster.Get[corev1.PersistentVolume](context.Background(), w.api, "", c.Spec.VolumeName)
	w.must(err)
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{at}}}}}}}
	w.must(w.api.Update(context.Background(), pv))
}

// schedule gives pods a node and binds their claims there.
func (w *world) schedule() bool {
	ctx := context.Background()
	var pods corev1.PodList
	w.must(w.api.List(ctx, &pods))
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName != "" || len(p.Status.Conditions) > 0 || p.DeletionTimestamp != nil || len(p.Spec.SchedulingGates) > 0 {
			continue
		}
		if w.sc.nowhere {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available"}}
			w.must(w.api.Status().Update(ctx, p))
			return true
		}
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim == nil {
				continue
			}
			c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, w.api, ns, v.PersistentVolumeClaim.ClaimName)
			w.must(err)
			if c.Status.Phase != corev1.ClaimBound {
				w.bind(c)
				w.populate(c)
				w.place(c, node(p))
			}
		}
		p.Spec.NodeName = node(p)
		w.must(w.api.Update(ctx, p))
		return true
	}
	return false
}

// kubelet starts pods and plays what is in them.
func (w *world) kubelet() bool {
	ctx := context.Background()
	var pods corev1.PodList
	w.must(w.api.List(ctx, &pods))
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName != "" && w.live(p) {
			w.must(w.api.Status().Update(ctx, p))
			return true
		}
	}
	return false
}

// live is one step in the life of a pod on a node.
func (w *world) live(p *corev1.Pod) bool {
	_, consumer := p.Annotations[render.AnnConsumer]
	ready := pods.Ready(p)
	switch {
	case p.DeletionTimestamp != nil && !podend.Over(p):
		p.Status.Conditions, p.Status.Phase = nil, corev1.PodFailed
		return true
	case p.DeletionTimestamp != nil:
		return false
	case p.Status.Phase == "":
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.0.0.1"
		return true
	case p.Status.Phase != corev1.PodRunning || consumer:
		return false
	case p.Labels[render.LabelMachine] == render.HotplugDisk:
		return w.handOver(p, ready)
	case launcherpod.Incoming(p) != "" && !ready:
		return w.arrive(p)
	case ready && w.depart(p):
		return true
	case !ready && p.Annotations[render.AnnGo] == "yes":
		w.guests++
		w.data.run(w, p, false)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return true
	case ready && w.guests <= len(w.sc.ends):
		r := launcherapi.Report{End: w.sc.ends[w.guests-1], Detail: "it ended"}
		text, err := json.Marshal(r)
		w.must(err)
		p.Status.Conditions, p.Status.Phase = nil, corev1.PodFailed
		if r.OK() {
			p.Status.Phase = corev1.PodSucceeded
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: string(text), FinishedAt: metav1.NewTime(w.clock.Now())}}}}
		return true
	}
	return false
}

// handOver plays a holder, the agent and the launcher: the guest has the disk while the launcher is told of it.
func (w *world) handOver(p *corev1.Pod, ready bool) bool {
	launcher, err := cluster.Get[corev1.Pod](context.Background(), w.api, ns, metav1.GetControllerOf(p).Name)
	w.must(err)
	told := launcher != nil && has(launcher, p.Labels[render.LabelVolume])
	switch {
	case w.backedUp:
		return false
	case told && !ready:
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	case !told && ready && !w.keeps:
		p.Status.Conditions, p.Status.Phase = nil, corev1.PodSucceeded
	default:
		return false
	}
	return true
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

func (w *world) vm() *kubevirt.VirtualMachine {
	vm, err := cluster.Get[kubevirt.VirtualMachine](context.Background(), w.api, ns, vmName)
	w.must(err)
	return vm
}

func (w *world) instance() *kubevirt.VirtualMachineInstance {
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](context.Background(), w.api, ns, vmName)
	w.must(err)
	return i
}
