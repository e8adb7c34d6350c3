package containervolume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	contract "github.com/berth-vm/berth/internal/containervolume"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// The loop tests run the reconciler against a cluster that plays kubelet, container, guest and garbage collector. Each scenario is run
// once undisturbed, and then with each write refused and with the controller dying right after each write. However it is disturbed, it
// must end in the same place, and what the container has made must be what the machines want: nothing is left behind.

const ns, vmName = "team", "web"

type world struct {
	t       *testing.T
	api     client.Client // without faults
	r       *Reconciler
	clock   *clocktest.FakePassiveClock
	faults  faults.Injector
	made    int
	storage map[string]bool // what containers have made and not deleted, by machine's UID and volume
	answer  func() (*kubevirt.MadeSource, error)
	broken  bool // no pod starts
	leaving bool // nothing is made in the namespace any more
	busy    int  // answers of DELETE that are no success
	events  *events.FakeRecorder
}

var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Secret{}, &corev1.SecretList{}, &corev1.Namespace{})
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	if err := errors.Join(kubevirt.AddToScheme(s), accessv1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
})

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: clocktest.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), storage: map[string]bool{}, events: events.NewFakeRecorder(10000)}
	w.answer = func() (*kubevirt.MadeSource, error) {
		return contract.Read([]byte("iscsi: {host: {name: 10.0.0.9, port: \"3260\"}, portal: iqn.2017-01.io.kubevirt:sn.42}\nlun: 2\n"))
	}
	base := fake.NewClientBuilder().WithScheme(scheme()).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&kubevirt.VirtualMachine{}, &accessv1.ContainerVolume{}, &corev1.Pod{}).Build()
	w.api = base
	w.r = &Reconciler{reader: base, live: base, clock: w.clock, keys: w, ask: w,
		cluster: cluster.New(w.faults.Client(base, w.admit), w.events, w.clock)}
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: vmName, UID: "vm-uid"},
		Spec: kubevirt.VirtualMachineSpec{Template: &kubevirt.VirtualMachineInstanceTemplateSpec{}}}
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{Container: &kubevirt.ContainerSource{Image: "maker"}}}}
	w.must(w.api.Create(context.Background(), vm))
	return w
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

func (w *world) admit(obj client.Object) error {
	if w.leaving {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, obj.GetName(), errors.New("the namespace is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	}
	w.made++
	obj.SetUID(types.UID(fmt.Sprintf("%T-%d", obj, w.made)))
	return nil
}

// The keys and the container.

func (w *world) Trusted(context.Context) (string, error) { return "all", nil }
func (w *world) Due(until time.Time) bool                { return until.Before(w.clock.Now()) }
func (w *world) Serving(_ context.Context, name string) (map[string][]byte, string, time.Time, error) {
	return map[string][]byte{"tls.crt": []byte(name)}, "all", w.clock.Now().Add(1000 * time.Hour), nil
}

func (w *world) Make(_ context.Context, v *volume) (*kubevirt.MadeSource, error) {
	if v.pod == nil || v.record == nil || !w.stored(v).Spec.Asked {
		w.t.Error("asked before it was written down")
	}
	w.storage[string(v.record.Spec.MachineUID)+"/"+v.name] = true
	return w.answer()
}

func (w *world) Delete(_ context.Context, v *volume) error {
	if i := w.instance(); i != nil && i.DeletionTimestamp == nil && len(i.Spec.Volumes) > 0 && i.Spec.Volumes[0].Name == v.name {
		w.t.Error("deleted under a guest")
	}
	if w.busy > 0 {
		w.busy--
		return fmt.Errorf("%w: DELETE was answered with 500", contract.ErrRefused)
	}
	delete(w.storage, string(v.record.Spec.MachineUID)+"/"+v.name)
	return nil
}

// stored returns the record as the server has it.
func (w *world) stored(v *volume) *accessv1.ContainerVolume {
	c, err := cluster.Get[accessv1.ContainerVolume](context.Background(), w.api, ns, v.record.Name)
	w.must(err)
	return c
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

// turn simulates the other programs of the cluster for one step; it returns whether they did anything.
func (w *world) turn() bool {
	ctx := context.Background()
	var pods corev1.PodList
	w.must(w.api.List(ctx, &pods))
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp == nil && !runs(p) && !w.broken {
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1",
				Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
			w.must(w.api.Status().Update(ctx, p))
			return true
		}
		if p.DeletionTimestamp == nil && w.broken && len(p.Status.ContainerStatuses) == 0 {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
			w.must(w.api.Status().Update(ctx, p))
			return true
		}
	}
	return false
}

func (w *world) settle() {
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: vmName}}
	waits := 0
	for range 200 {
		before := w.faults.Writes
		result, err := w.r.Reconcile(context.Background(), request)
		if err != nil && !faults.Caused(err) && !apierrors.IsConflict(err) {
			w.t.Fatalf("reconcile: %v", err)
		}
		waits++
		if w.turn() || err != nil || w.faults.Writes != before {
			waits = 0
		}
		if waits > 4 || waits > 0 && (result.RequeueAfter == 0 || result.RequeueAfter > time.Minute) {
			return
		}
	}
	w.t.Fatalf("the loop never came to rest:\n%s", w.outcome())
}

// outcome returns where the loop ended, without what may differ from run to run.
func (w *world) outcome() string {
	ctx := context.Background()
	left := map[string]any{"storage": w.storage}
	if vm := w.vm(); vm != nil {
		left["finalizers"] = vm.Finalizers
	}
	var records accessv1.ContainerVolumeList
	w.must(w.api.List(ctx, &records))
	for _, c := range records.Items {
		c.Spec.AnsweredBy, c.Status.Since, c.Spec.Keys = "", nil, nil
		left["record "+c.Spec.Volume] = []any{c.Spec, c.Status, c.DeletionTimestamp != nil}
	}
	for kind, list := range map[string]client.ObjectList{"pods": &corev1.PodList{}, "secrets": &corev1.SecretList{}} {
		w.must(w.api.List(ctx, list))
		text, err := json.Marshal(list)
		w.must(err)
		var items struct {
			Items []struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
			} `json:"items"`
		}
		w.must(json.Unmarshal(text, &items))
		var names []string
		for _, i := range items.Items {
			names = append(names, i.Metadata.Name)
		}
		left[kind] = names
	}
	text, err := json.MarshalIndent(left, "", " ")
	w.must(err)
	return string(text)
}

// What happens to a machine.

func (w *world) change(do func(*kubevirt.VirtualMachine)) {
	vm := w.vm()
	do(vm)
	w.must(w.api.Update(context.Background(), vm))
}

func remove(w *world) { w.must(w.api.Delete(context.Background(), w.vm())) }

func dropVolume(w *world) {
	w.change(func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Volumes = nil })
}

func putBack(w *world) {
	w.change(func(vm *kubevirt.VirtualMachine) {
		vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{Container: &kubevirt.ContainerSource{Image: "maker"}}}}
	})
}

func otherImage(w *world) {
	w.change(func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Volumes[0].Container.Image = "other" })
}

func abandon(w *world) {
	w.change(func(vm *kubevirt.VirtualMachine) { vm.Annotations = map[string]string{AnnAbandon: "data, root"} })
}

func start(w *world) {
	w.must(w.api.Create(context.Background(), &kubevirt.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: vmName, UID: "run", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(w.vm(), kubevirt.GroupVersion.WithKind("VirtualMachine"))}},
		Spec: kubevirt.VirtualMachineInstanceSpec{Volumes: []kubevirt.Volume{{Name: "root"}}}}))
}

func stop(w *world) { w.must(w.api.Delete(context.Background(), w.instance())) }

func losePod(w *world) {
	w.must(w.api.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(ns)))
}

func refuse(w *world) {
	w.answer = func() (*kubevirt.MadeSource, error) { return contract.Read([]byte("container: {image: again}")) }
}

func breakPods(w *world) { w.broken = true; losePod(w) }

func sweep(w *world) { w.leaving = true; losePod(w); remove(w) }

func sweepKindly(w *world) { w.leaving = true; remove(w) }

// sweepInOrder simulates the deletion of a namespace: its pods are deleted first, and other objects after they have gone.
func sweepInOrder(w *world) {
	ctx := context.Background()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Finalizers: []string{"kubernetes"}}}
	w.must(w.api.Create(ctx, n))
	w.must(w.api.Delete(ctx, n))
	var pods corev1.PodList
	w.must(w.api.List(ctx, &pods))
	for i := range pods.Items {
		pods.Items[i].Finalizers = []string{"kubelet"}
		w.must(w.api.Update(ctx, &pods.Items[i]))
		w.must(w.api.Delete(ctx, &pods.Items[i]))
	}
	w.leaving = true
	for range 40 {
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: vmName}})
		if err != nil && !faults.Caused(err) && !apierrors.IsConflict(err) {
			w.t.Fatal(err)
		}
	}
	if len(w.storage) != 0 {
		w.t.Error("the pods are going and the container has not been asked")
	}
	for i := range pods.Items {
		p, err := cluster.Get[corev1.Pod](ctx, w.api, ns, pods.Items[i].Name)
		w.must(err)
		p.Finalizers = nil
		w.must(w.api.Update(ctx, p))
	}
	remove(w)
}

func stumble(w *world) { w.busy = 3 }

func TestLoop(t *testing.T) {
	const none = `"storage": {}`
	for _, sc := range []struct {
		name string
		asks []func(*world)
		want []string // in what is left
	}{
		{"made", nil, []string{"vm-uid/root\": true", "VolumeMade", "10.0.0.9"}},
		{"refused", []func(*world){refuse, losePod}, []string{"VolumeRefused", "it names container, which a container may not give", "vm-uid/root\": true"}},
		{"the machine goes", []func(*world){remove}, []string{none, `"pods": null`, `"secrets": null`}},
		{"the machine goes while its guest runs", []func(*world){start, remove}, []string{none, `"pods": null`}},
		{"the machine goes, and the container stumbles", []func(*world){stumble, remove}, []string{none, `"pods": null`}},
		{"the machine goes after its pod", []func(*world){losePod, remove}, []string{none, `"pods": null`}},
		{"the volume leaves", []func(*world){dropVolume}, []string{none, `"finalizers": null`, `"pods": null`}},
		{"the volume leaves a running machine", []func(*world){start, dropVolume}, []string{"VolumeInUse", "vm-uid/root\": true"}},
		{"the volume leaves a running machine, which stops", []func(*world){start, dropVolume, stop}, []string{none, `"pods": null`}},
		{"the volume leaves and comes back", []func(*world){dropVolume, putBack}, []string{"VolumeMade", "vm-uid/root\": true"}},
		{"the pod is lost", []func(*world){losePod}, []string{"VolumeMade", "vm-uid/root\": true"}},
		{"another image", []func(*world){otherImage}, []string{"VolumeMade", `"image": "other"`}},
		{"another image under a guest", []func(*world){start, otherImage}, []string{"VolumeMade", `"image": "maker"`}},
		{"another image after the guest", []func(*world){start, otherImage, stop}, []string{"VolumeMade", `"image": "other"`}},
		{"the namespace goes, and the pod first", []func(*world){sweep}, []string{`"pods": null`, "vm-uid/root\": true"}},
		{"the namespace goes in order", []func(*world){sweepInOrder}, []string{`"pods": null`, none}},
		{"the namespace goes", []func(*world){sweepKindly}, []string{`"pods": null`, none}},
		{"no pod runs any more", []func(*world){breakPods, remove}, []string{"VolumeNotDeleted", "ImagePullBackOff no such image", "berth.dev/abandon-volumes", "vm-uid/root\": true"}},
		{"no pod runs any more, and the owner lets go", []func(*world){breakPods, remove, abandon}, []string{`"pods": null`, "vm-uid/root\": true"}},
	} {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			run := func(at int, kind faults.Kind) *world {
				w := newWorld(t)
				w.faults.At, w.faults.Kind = at, kind
				w.settle()
				for _, ask := range sc.asks {
					ask(w)
					w.settle()
				}
				return w
			}
			calm := run(-1, "")
			want := calm.outcome()
			for _, text := range sc.want {
				if !strings.Contains(want, text) {
					t.Errorf("%q is not in what is left:\n%s", text, want)
				}
			}
			// Not every write fails: a Secret that cannot be read is replaced in three writes, and the controller must survive these.
			for at := 1; at <= calm.faults.Writes; at++ {
				for _, kind := range faults.Kinds {
					if diff := cmp.Diff(want, run(at, kind).outcome()); diff != "" {
						t.Errorf("write %d of %d, %s: another end (-undisturbed +disturbed):\n%s", at, calm.faults.Writes, kind, diff)
					}
				}
			}
			before := calm.faults.Writes
			calm.settle()
			if calm.faults.Writes != before {
				t.Errorf("%d writes although nothing was left to do", calm.faults.Writes-before)
			}
		})
	}
}

// TestPodOfAStranger: a pod that a user made under the name of ours is neither asked nor deleted, and the machine reports it.
func TestPodOfAStranger(t *testing.T) {
	w := newWorld(t)
	name := render.MakerName(vmName, "vm-uid", "root")
	w.must(w.api.Create(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: "stranger"}}))
	for range 10 {
		_, err := w.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: vmName}})
		w.must(err)
		w.turn()
	}
	if len(w.storage) != 0 {
		t.Error("somebody else's pod was asked")
	}
	if text := w.outcome(); !strings.Contains(text, "a pod of that name exists and is not ours") {
		t.Errorf("nothing is said:\n%s", text)
	}
}
