package restore

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	external "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/probe"
	snapshotting "github.com/berth-vm/berth/internal/controller/snapshot"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/testing/faults"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// world is a cluster of one machine with one disk, its storage played by a few lines.
type world struct {
	t      *testing.T
	api    client.Client // without faults: what the cluster itself uses
	take   *snapshotting.Reconciler
	r      *Reconciler
	clock  *clocktest.FakePassiveClock
	faults faults.Injector
	agent  bool // the guest has one
	frozen bool
	story  []string // what the guest and the storage went through

	answers, back bool // it has an answer ready; the snapshot is to be looked at again

	patches []string // of the next restore
	refuse  string   // why the API server takes no machine

	denies  func(client.Object) error // what the API server refuses; nil: nothing
	fails   string                    // why the driver makes no volume
	each    func()                    // after every look at a restore; nil: nothing
	more    []string                  // claims that the machine has besides the first
	counted int                       // those looks
}

// asked reports whether the guest answers a question the second time it is put, when the first has brought the snapshot back.
func (w *world) asked(done func()) bool {
	if w.answers {
		w.answers = false
		return true
	}
	w.answers = true
	done()
	<-w.take.Answered
	w.back = true
	return false
}

// Freeze and Thaw make the world the guest.
func (w *world) Freeze(_ *corev1.Pod, _ types.UID, done func()) (bool, error) {
	if !w.asked(done) {
		return false, probe.ErrNoAnswerYet
	}
	if w.agent && !w.frozen {
		w.story = append(w.story, "frozen")
	}
	w.frozen = w.agent
	return w.agent, nil
}

func (w *world) Thaw(_ *corev1.Pod, _ types.UID, done func()) (bool, error) {
	if !w.asked(done) {
		return false, probe.ErrNoAnswerYet
	}
	if w.frozen {
		w.story = append(w.story, "thawed")
	}
	w.frozen = false
	return w.agent, nil
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolume{}, &corev1.PersistentVolumeList{},
		&corev1.Node{}, &corev1.NodeList{}, &corev1.Namespace{}, &corev1.Event{}, &corev1.EventList{})
	s.AddKnownTypes(storagev1.SchemeGroupVersion, &storagev1.StorageClass{})
	s.AddKnownTypes(cdiv1.SchemeGroupVersion, &cdiv1.DataVolume{}, &cdiv1.DataVolumeList{}, &cdiv1.StorageProfile{})
	metav1.AddToGroupVersion(s, cdiv1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, storagev1.SchemeGroupVersion)
	if err := errors.Join(kubevirt.AddToScheme(s), accessv1.AddToScheme(s), snapshotv1.AddToScheme(s), volumesnapshot.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

func newWorld(t *testing.T, running, agent bool) *world {
	t.Helper()
	w := &world{t: t, agent: agent, clock: clocktest.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	vm, claim := machine()
	class := &volumesnapshot.Class{ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Driver: "disks", DeletionPolicy: "Delete"}
	b := fake.NewClientBuilder().WithScheme(scheme(t)).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&snapshotv1.VirtualMachineSnapshot{}, &snapshotv1.VirtualMachineSnapshotContent{},
			&snapshotv1.VirtualMachineRestore{}, &corev1.PersistentVolumeClaim{}, &kubevirt.VirtualMachineInstance{}).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).
		WithIndex(&corev1.Event{}, "type", func(o client.Object) []string { return []string{o.(*corev1.Event).Type} }).
		WithObjects(vm, claim, volumeOf("pv", claim), class, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "disks"},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{"zone": "a"}}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	if running {
		i, pod := instance()
		b = b.WithObjects(i, pod)
	}
	base := b.Build()
	w.api = base
	w.writes(cluster.New(w.faults.Client(base, w.admit), events.NewFakeRecorder(1000), w.clock))
	return w
}

// writes makes the controllers, which write with writer.
func (w *world) writes(writer *cluster.Writer) {
	w.take = snapshotting.New(w.api, w.api, writer, w.clock, w, 1)
	w.r = &Reconciler{reader: w.api, live: w.api, clock: w.clock, cluster: writer, records: diskaccess.New(w.api, w.api, writer)}
}

// admit gives an object what the API server would, or refuses it.
func (w *world) admit(obj client.Object) error {
	if _, ok := obj.(*kubevirt.VirtualMachine); ok && w.refuse != "" {
		return apierrors.NewInvalid(kubevirt.GroupVersion.WithKind("VirtualMachine").GroupKind(), obj.GetName(),
			field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), obj.GetName(), w.refuse)})
	}
	if w.denies != nil {
		if err := w.denies(obj); err != nil {
			return err
		}
	}
	obj.SetUID(types.UID("made-" + obj.GetName()))
	obj.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
	return nil
}

func machine() (*kubevirt.VirtualMachine, *corev1.PersistentVolumeClaim) {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vm", UID: "vm-uid"}}
	vm.Spec.VolumeClaimTemplates = []kubevirt.VolumeClaimTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}}
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: kubevirt.VirtualMachineInstanceSpec{Volumes: []kubevirt.Volume{
		{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{Name: "disk"}}},
		{Name: "seed", VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitSource{UserData: "x"}}},
	}}}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	return vm, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "vm-disk", UID: "old", Labels: map[string]string{"app": "x"},
			Annotations:     map[string]string{"pv.kubernetes.io/bind-completed": "yes", names.SelectedNode: "node1"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.GroupVersion.WithKind("VirtualMachine"))},
		},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("local"), VolumeName: "pv",
			Resources: corev1.VolumeResourceRequirements{Requests: size.DeepCopy()}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size},
	}
}

func instance() (*kubevirt.VirtualMachineInstance, *corev1.Pod) {
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vm", UID: "run"}}
	i.Status.Phase = kubevirt.PhaseRunning
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: render.Machine{Instance: i}.PodName(render.Launcher), UID: "pod",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(i, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	return i, pod
}

// TestALauncherThatIsNone: a pod that has the labels, or the name, but not the instance as its controller, is never asked.
func TestALauncherThatIsNone(t *testing.T) {
	i, real := instance()
	labels := map[string]string{render.LabelCreatedBy: "run", render.LabelMachine: "virt-launcher"}
	stranger := *metav1.NewControllerRef(&kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "run2"}},
		kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))
	for name, forge := range map[string]func(p *corev1.Pod){
		"labels and another name": func(p *corev1.Pod) { p.Name = "launcher" },
		"labels and the name":     func(p *corev1.Pod) { p.OwnerReferences = nil },
		"of another instance":     func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{stranger} },
		"owned, not controlled":   func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, false, true)
			forged := real.DeepCopy()
			forged.Labels = labels
			forge(forged)
			w.must(w.api.Create(context.Background(), forged))
			if got, err := w.r.read().LauncherOf(context.Background(), i); got != nil || err != nil {
				t.Errorf("taken for the launcher: %v, %v", got, err)
			}
		})
	}
	w := newWorld(t, false, true)
	w.must(w.api.Create(context.Background(), real.DeepCopy()))
	if got, err := w.r.read().LauncherOf(context.Background(), i); got == nil || err != nil {
		t.Errorf("the launcher itself: %v, %v", got, err)
	}
}

// storage simulates the rest of the cluster: VolumeSnapshots are cut, then stored; claims with a source are bound.
func (w *world) storage() {
	ctx := context.Background()
	all := &volumesnapshot.List{}
	w.must(w.api.List(ctx, all))
	for i := range all.Items {
		s := &all.Items[i]
		switch {
		case s.Status == nil:
			state := "running"
			if w.frozen {
				state = "still"
			}
			w.story = append(w.story, "cut while "+state)
			cut := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC))
			s.Status = &external.VolumeSnapshotStatus{CreationTime: &cut, RestoreSize: ptr.To(resource.MustParse("1Gi"))}
		case s.Status.ReadyToUse == nil:
			s.Status.ReadyToUse = ptr.To(true)
		default:
			continue
		}
		w.must(w.api.Update(ctx, s))
	}
	w.importer()
	w.provision()
	w.reclaim()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// run lets controller and cluster take turns until the controller has nothing to come back for.
func (w *world) run(obj client.Object, reconcile func(context.Context, ctrl.Request) (ctrl.Result, error)) {
	w.t.Helper()
	ctx := context.Background()
	obj.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
	w.must(w.api.Create(ctx, obj))
	for range 60 {
		result, err := reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
		if err != nil && !faults.Caused(err) {
			w.t.Fatalf("reconcile: %v", err)
		}
		w.counted++
		if w.each != nil {
			w.each()
		}
		if err == nil && (result.RequeueAfter == 0 || result.RequeueAfter == snapshotting.LookStored) && !w.back {
			return
		}
		w.back = false
		w.storage()
		w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	}
	w.t.Fatalf("the loop never came to rest; it says %s", w.says())
}

func (w *world) snapshot() {
	w.run(&snapshotv1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "snap", UID: "snap-uid"},
		Spec:       snapshotv1.VirtualMachineSnapshotSpec{Source: corev1.TypedLocalObjectReference{APIGroup: ptr.To("kubevirt.io"), Kind: "VirtualMachine", Name: "vm"}},
	}, w.take.Reconcile)
}

func (w *world) restore(policy snapshotv1.TargetReadinessPolicy) { w.restoreTo("vm", policy) }

func (w *world) restoreTo(name string, policy snapshotv1.TargetReadinessPolicy) {
	w.run(&snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "back", UID: "back-uid"},
		Spec: snapshotv1.VirtualMachineRestoreSpec{VirtualMachineSnapshotName: "snap", TargetReadinessPolicy: &policy, Patches: w.patches,
			Target: corev1.TypedLocalObjectReference{APIGroup: ptr.To("kubevirt.io"), Kind: "VirtualMachine", Name: name}},
	}, w.r.Reconcile)
}

func read[T any, P interface {
	*T
	client.Object
}](w *world, name string) P {
	w.t.Helper()
	obj, err := cluster.Get[T, P](context.Background(), w.api, "team", name)
	w.must(err)
	return obj
}

// end returns where it ended, without what may differ from run to run.
func (w *world) end() string {
	out := map[string]any{"story": w.story, "frozen": w.frozen}
	if s := read[snapshotv1.VirtualMachineSnapshot](w, "snap"); s != nil {
		out["phase"], out["how"], out["parts"] = s.Status.Phase, s.Status.Indications, s.Status.SnapshotVolumes
	}
	if r := read[snapshotv1.VirtualMachineRestore](w, "back"); r != nil {
		out["complete"], out["restores"] = r.Status.Complete, r.Status.Restores
	}
	c := read[corev1.PersistentVolumeClaim](w, "vm-disk")
	out["claim"], out["from"], out["owner"], out["notes"] = c.UID, c.Spec.DataSourceRef, c.OwnerReferences, c.Annotations
	out["volumes"] = w.volumes()
	out["instance"] = read[kubevirt.VirtualMachineInstance](w, "vm") != nil
	text, err := json.MarshalIndent(out, "", " ")
	w.must(err)
	return string(text)
}

// TestLoop takes a snapshot and puts it back, once undisturbed, and then with every write refused or the last one the
// controller makes: it must end in the same place.
func TestLoop(t *testing.T) {
	for _, c := range []struct {
		name           string
		running, agent bool
		story          []string
		how            []snapshotv1.Indication
	}{
		{"stopped", false, false, []string{"cut while running"}, nil},
		{"running with an agent", true, true, []string{"frozen", "cut while still", "thawed"},
			[]snapshotv1.Indication{snapshotv1.Online, snapshotv1.GuestAgent}},
		{"running without an agent", true, false, []string{"cut while running"}, []snapshotv1.Indication{snapshotv1.Online, snapshotv1.NoGuestAgent}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			do := func(w *world) string {
				w.snapshot()
				w.restore(snapshotv1.StopTarget)
				return w.end()
			}
			calm := newWorld(t, c.running, c.agent)
			want := do(calm)
			if !slices.Equal(calm.story, c.story) {
				t.Errorf("the story is %q, want %q", calm.story, c.story)
			}
			s, r := read[snapshotv1.VirtualMachineSnapshot](calm, "snap"), read[snapshotv1.VirtualMachineRestore](calm, "back")
			if s.Status.Phase != snapshotv1.Succeeded || !slices.Equal(s.Status.Indications, c.how) {
				t.Errorf("phase %s, indications %v", s.Status.Phase, s.Status.Indications)
			}
			if r.Status.Complete == nil || !*r.Status.Complete {
				t.Errorf("the restore is not complete: %+v", r.Status)
			}
			claim := read[corev1.PersistentVolumeClaim](calm, "vm-disk")
			if claim.UID == "old" || claim.Spec.DataSourceRef == nil || claim.Annotations[names.SelectedNode] != "node1" {
				t.Errorf("the claim was not put back: %+v", claim)
			}
			for at := 1; at <= calm.faults.Writes; at++ {
				for _, kind := range faults.Kinds {
					w := newWorld(t, c.running, c.agent)
					w.faults.At, w.faults.Kind = at, kind
					if diff := cmp.Diff(want, do(w)); diff != "" {
						t.Errorf("write %d of %d, %s: another end (-undisturbed +disturbed):\n%s", at, calm.faults.Writes, kind, diff)
					}
				}
			}
		})
	}
}
