package machineclone

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clonev1 "github.com/berth-vm/berth/api/clone/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/testing/faults"
)

const ns = "team"

// world is a namespace with a machine; the controllers that take and restore snapshots are played by a few lines.
type world struct {
	t      *testing.T
	api    client.WithWatch // without faults
	r      *Reconciler
	faults faults.Injector
	events *events.FakeRecorder
	snaps  snapshotv1.Phase // how snapshots end
	parts  []string         // the volumes that they have
	broken bool             // restores fail
}

func reference(kind, name string) corev1.TypedLocalObjectReference {
	group := "kubevirt.io"
	if kind == "VirtualMachineSnapshot" {
		group = "snapshot.kubevirt.io"
	}
	return corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kind, Name: name}
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), kubevirt.AddToScheme(s), snapshotv1.AddToScheme(s), clonev1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, snaps: snapshotv1.Succeeded, parts: []string{"root"}, events: events.NewFakeRecorder(1000)}
	w.api = fake.NewClientBuilder().WithScheme(s).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&clonev1.VirtualMachineClone{}, &snapshotv1.VirtualMachineSnapshot{}, &snapshotv1.VirtualMachineRestore{}).
		WithObjects(objects...).Build()
	clock := clocktest.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	uid := 0
	w.r = &Reconciler{reader: w.api, live: w.api, clock: clock, cluster: cluster.New(w.faults.Client(w.api, func(obj client.Object) error {
		uid++
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", uid)))
		return nil
	}), w.events, clock)}
	return w
}

func machine(name string) *kubevirt.VirtualMachine {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}}}
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "disk"}}}}
	return vm
}

func clone(target string) *clonev1.VirtualMachineClone {
	c := &clonev1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c", UID: "12345-c"}}
	c.Spec.Source = reference("VirtualMachine", "web")
	if target != "" {
		c.Spec.Target = ptr.To(reference("VirtualMachine", target))
	}
	return c
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func get[T any, P interface {
	*T
	client.Object
}](w *world, name string) P {
	w.t.Helper()
	o, err := cluster.Get[T, P](context.Background(), w.api, ns, name)
	w.must(err)
	return o
}

// play takes snapshots and restores them.
func (w *world) play() {
	ctx := context.Background()
	var snapshots snapshotv1.VirtualMachineSnapshotList
	w.must(w.api.List(ctx, &snapshots))
	for i := range snapshots.Items {
		s := &snapshots.Items[i]
		if s.Status.Phase != "" {
			continue
		}
		content := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "vmsnapshot-content-" + string(s.UID),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "snapshot.kubevirt.io/v1beta1", Kind: "VirtualMachineSnapshot", Name: s.Name, UID: s.UID, Controller: ptr.To(true)}}}}
		vm := machine("web")
		content.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{ObjectMeta: vm.ObjectMeta, Spec: vm.Spec}
		for _, p := range w.parts {
			content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, snapshotv1.VolumeBackup{VolumeName: p})
		}
		w.must(w.api.Create(ctx, content))
		s.Status.Phase, s.Status.ReadyToUse = w.snaps, ptr.To(w.snaps == snapshotv1.Succeeded)
		w.must(w.api.Status().Update(ctx, s))
	}
	var restores snapshotv1.VirtualMachineRestoreList
	w.must(w.api.List(ctx, &restores))
	for i := range restores.Items {
		w.restore(&restores.Items[i])
	}
}

func (w *world) restore(r *snapshotv1.VirtualMachineRestore) {
	ctx := context.Background()
	ended := func(kind snapshotv1.ConditionType) {
		r.Status.Conditions = []snapshotv1.Condition{{Type: kind, Status: corev1.ConditionTrue, Message: "it ended"}}
		w.must(w.api.Status().Update(ctx, r))
	}
	vm := get[kubevirt.VirtualMachine](w, r.Spec.Target.Name)
	switch {
	case len(r.Status.Conditions) > 0:
	case w.broken:
		ended(snapshotv1.ConditionFailure)
	case vm == nil:
		vm = machine(r.Spec.Target.Name)
		vm.Annotations = map[string]string{"berth.dev/restore": string(r.UID)}
		w.must(w.api.Create(ctx, vm))
	case vm.Annotations["berth.dev/restore"] == string(r.UID):
		ended(snapshotv1.ConditionReady)
	default:
		ended(snapshotv1.ConditionFailure)
	}
}

// run looks at the clone until nothing changes any more.
func (w *world) run() *clonev1.VirtualMachineClone {
	w.t.Helper()
	for range 30 {
		_, err := w.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: ns, Name: "c"}})
		if err != nil && !faults.Caused(err) {
			w.t.Fatal(err)
		}
		w.play()
	}
	return get[clonev1.VirtualMachineClone](w, "c")
}

func (w *world) said() string {
	var all []string
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, strings.Fields(e)[1])
		default:
			return strings.Join(all, " ")
		}
	}
}

// left returns what the clone has left behind.
func (w *world) left() string {
	var out []string
	var snapshots snapshotv1.VirtualMachineSnapshotList
	var restores snapshotv1.VirtualMachineRestoreList
	w.must(errors.Join(w.api.List(context.Background(), &snapshots), w.api.List(context.Background(), &restores)))
	for _, s := range snapshots.Items {
		out = append(out, s.Name)
	}
	for _, r := range restores.Items {
		out = append(out, r.Name)
	}
	return strings.Join(out, " ")
}

// TestClone: a clone becomes a machine of its own, and nothing of the way to it is left.
func TestClone(t *testing.T) {
	w := newWorld(t, machine("web"), clone(""))
	c := w.run()
	if c.Status.Phase != clonev1.Succeeded || *c.Status.TargetName != "web-clone-12345" || c.Status.CreationTime == nil || c.Status.SnapshotName != nil || c.Status.RestoreName != nil {
		t.Errorf("status %+v", c.Status)
	}
	if get[kubevirt.VirtualMachine](w, "web-clone-12345") == nil || w.left() != "" {
		t.Errorf("there is no target, or something is left: %s", w.left())
	}
	if got := w.said(); got != "SnapshotCreated RestoreCreated RestoreReady TargetVMCreated" {
		t.Errorf("events %s", got)
	}
	w.must(w.api.Delete(context.Background(), get[kubevirt.VirtualMachine](w, "web-clone-12345")))
	if c := w.run(); c != nil {
		t.Errorf("the clone outlives its target: %+v", c.Status)
	}
}

// TestCloneInHarmsWay: whatever write fails, or is the controller's last, the clone comes to the same end, with one target.
func TestCloneInHarmsWay(t *testing.T) {
	for _, kind := range faults.Kinds {
		for n := 1; n < 12; n++ {
			w := newWorld(t, machine("web"), clone("copy"))
			w.faults.At, w.faults.Kind = n, kind
			c := w.run()
			if c == nil || c.Status.Phase != clonev1.Succeeded || w.left() != "" || get[kubevirt.VirtualMachine](w, "copy") == nil {
				t.Errorf("write %d, %s: %+v, left %s", n, kind, c, w.left())
			}
		}
	}
}

// TestCloneOfASnapshot: a snapshot that was there stays, and is never put back in place by a clone.
func TestCloneOfASnapshot(t *testing.T) {
	taken := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "monday", UID: "s1"}}
	for target, want := range map[string]clonev1.Phase{"copy": clonev1.Succeeded, "web": clonev1.Failed} {
		c := clone(target)
		c.Spec.Source = reference("VirtualMachineSnapshot", "monday")
		w := newWorld(t, taken.DeepCopy(), c)
		got := w.run()
		if got.Status.Phase != want || w.left() != "monday" {
			t.Errorf("%s: %+v, left %s", target, got.Status, w.left())
		}
		if target == "web" && get[kubevirt.VirtualMachine](w, "web") != nil {
			t.Errorf("the machine of the snapshot was made again")
		}
	}
}

// TestCloneRefused: a machine, snapshot or restore of a user is never taken for the clone's, and a clone never shares a disk with
// its source.
func TestCloneRefused(t *testing.T) {
	strange := metav1.ObjectMeta{Namespace: ns, UID: "else"}
	for name, row := range map[string]struct {
		objects []client.Object
		change  func(*world)
		phase   clonev1.Phase
		want    string
	}{
		"no source":     {nil, nil, "", "SourceDoesNotExist"},
		"target exists": {[]client.Object{machine("web"), machine("copy")}, nil, clonev1.Failed, "TargetExists"},
		"snapshot's name is taken": {[]client.Object{machine("web"), &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tmp-snapshot-12345-c", UID: "else"},
			Status: snapshotv1.VirtualMachineSnapshotStatus{Phase: snapshotv1.InProgress}}}, nil, clonev1.Failed, "NameTaken"},
		"restore's name is taken": {[]client.Object{machine("web"), &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tmp-restore-12345-c", UID: strange.UID},
			Spec: snapshotv1.VirtualMachineRestoreSpec{Target: reference("VirtualMachine", "web")}}}, nil, clonev1.Failed, "NameTaken"},
		"snapshot failed":    {[]client.Object{machine("web")}, func(w *world) { w.snaps = snapshotv1.Failed }, clonev1.Failed, "SnapshotFailed"},
		"a disk is left out": {[]client.Object{machine("web")}, func(w *world) { w.parts = nil }, clonev1.Failed, "SnapshotContentInvalid"},
		"restore failed":     {[]client.Object{machine("web")}, func(w *world) { w.broken = true }, clonev1.Failed, "RestoreFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(row.objects, clone("copy"))...)
			if row.change != nil {
				row.change(w)
			}
			c := w.run()
			if events := w.said(); c.Status.Phase != row.phase || !strings.HasSuffix(events, row.want) {
				t.Errorf("%+v, events %s", c.Status, events)
			}
			if vm := get[kubevirt.VirtualMachine](w, "copy"); vm != nil && vm.UID != "copy" {
				t.Errorf("somebody's machine was taken: %+v", vm)
			}
		})
	}
}
