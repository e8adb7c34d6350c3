package restore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/testing/faults"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// begin makes a restore in place without looking at it.
func (w *world) begin(name string, policy snapshotv1.TargetReadinessPolicy) {
	r := &snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: "back-uid", CreationTimestamp: metav1.NewTime(w.clock.Now())},
		Spec: snapshotv1.VirtualMachineRestoreSpec{VirtualMachineSnapshotName: "snap", TargetReadinessPolicy: &policy,
			Target: corev1.TypedLocalObjectReference{APIGroup: ptr.To("kubevirt.io"), Kind: "VirtualMachine", Name: "vm"}},
	}
	if name != "back" {
		r.UID = "second-uid"
	}
	w.must(w.api.Create(context.Background(), r))
}

// look looks at a restore once, and lets the cluster continue; false: there is nothing to come back for.
func (w *world) look(name string) bool {
	w.t.Helper()
	result, err := w.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "team", Name: name}})
	if err != nil && !faults.Caused(err) {
		w.t.Fatalf("reconcile: %v", err)
	}
	w.neverLost()
	w.storage()
	w.clock.SetTime(w.clock.Now().Add(max(result.RequeueAfter, time.Second)))
	return err != nil || result.RequeueAfter > 0
}

// until looks at the restore until it says something.
func (w *world) until(text string) {
	w.t.Helper()
	for range 40 {
		if strings.Contains(w.says(), text) {
			return
		}
		w.look("back")
	}
	w.t.Fatalf("it says %q, never %q", w.says(), text)
}

// finish looks at the restore until there is nothing to come back for.
func (w *world) finish(name string) {
	w.t.Helper()
	for range 60 {
		if !w.look(name) {
			return
		}
	}
	w.t.Fatalf("the loop never came to rest; it says %s", w.says())
}

func (w *world) withdraw() {
	w.t.Helper()
	if r := read[snapshotv1.VirtualMachineRestore](w, "back"); r != nil {
		w.must(w.api.Delete(context.Background(), r))
	}
	w.finish("back")
	if r := read[snapshotv1.VirtualMachineRestore](w, "back"); r != nil {
		w.t.Errorf("the restore stays: %v, %s", r.Finalizers, w.says())
	}
}

// nothingLeft: no staged claim, no volume that is kept, no finalizer is left over.
func (w *world) nothingLeft() {
	w.t.Helper()
	var claims corev1.PersistentVolumeClaimList
	w.must(w.api.List(context.Background(), &claims, client.HasLabels{labelStaged}))
	for _, c := range claims.Items {
		w.t.Errorf("staged claim %s is left", c.Name)
	}
	for _, v := range w.volumes() {
		if strings.Contains(v, labelKept) || strings.Contains(v, "Retain") {
			w.t.Errorf("volume %s is left", v)
		}
	}
	var contents snapshotv1.VirtualMachineSnapshotContentList
	w.must(w.api.List(context.Background(), &contents))
	for _, c := range contents.Items {
		if len(c.Finalizers) > 0 {
			w.t.Errorf("content %s keeps %v", c.Name, c.Finalizers)
		}
	}
}

// asBefore: the machine has the claims and volumes that it had.
func (w *world) asBefore() {
	w.t.Helper()
	for _, name := range append([]string{"vm-disk"}, w.more...) {
		c := read[corev1.PersistentVolumeClaim](w, name)
		if c == nil || !strings.HasPrefix(string(c.UID), "old") || c.Status.Phase != corev1.ClaimBound || c.DeletionTimestamp != nil {
			w.t.Errorf("claim %s is not what it was: %+v", name, c)
			continue
		}
		pv, err := cluster.Get[corev1.PersistentVolume](context.Background(), w.api, "", c.Spec.VolumeName)
		w.must(err)
		if !belongsTo(pv, c) || pv.Annotations[annData] != "present" {
			w.t.Errorf("the volume of claim %s is not what it was: %+v", name, pv)
		}
	}
}

// asInSnapshot: every claim of the machine has a volume with what was in the snapshot.
func (w *world) asInSnapshot() {
	w.t.Helper()
	for _, name := range append([]string{"vm-disk"}, w.more...) {
		c := read[corev1.PersistentVolumeClaim](w, name)
		if c == nil || c.Status.Phase != corev1.ClaimBound {
			w.t.Errorf("claim %s is %+v", name, c)
			continue
		}
		pv, err := cluster.Get[corev1.PersistentVolume](context.Background(), w.api, "", c.Spec.VolumeName)
		w.must(err)
		if !belongsTo(pv, c) || !strings.HasPrefix(pv.Annotations[annData], "vmsnapshot-snap-uid-volume-") {
			w.t.Errorf("claim %s has %+v", name, pv)
		}
	}
}

var claimsKind = schema.GroupResource{Resource: "persistentvolumeclaims"}

// TestRestoreSaysWhy: whatever keeps a volume from being made, the restore says it, the machine keeps its disks, and has them when
// the restore is withdrawn; or the restore continues when it is mended.
func TestRestoreSaysWhy(t *testing.T) {
	refuse := func(text string) func(w *world) {
		return func(w *world) {
			w.denies = func(obj client.Object) error {
				if _, claim := obj.(*corev1.PersistentVolumeClaim); claim && strings.HasSuffix(obj.GetName(), "-free") { // the last
					return apierrors.NewForbidden(claimsKind, obj.GetName(), errors.New(text))
				}
				return nil
			}
		}
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "disks"}
	for _, c := range []struct {
		name, says  string
		spoil, mend func(w *world)
	}{
		{"missing class", `VolumesNotMade: a volume cannot be made from the snapshot, and the machine keeps its disks; mend it, or delete the restore to withdraw it: ` +
			`StorageClass "local" of PersistentVolumeClaim vm-disk does not exist`,
			func(w *world) { w.must(w.api.Delete(t.Context(), class.DeepCopy())) },
			func(w *world) { w.must(w.api.Create(t.Context(), class.DeepCopy())) }},
		{"quota", "exceeded quota: team, requested: requests.storage=1Gi, used: requests.storage=4Gi, limited: requests.storage=4Gi; " +
			"until a restore is complete there has to be room for the disks as they are and as they were",
			refuse("exceeded quota: team, requested: requests.storage=1Gi, used: requests.storage=4Gi, limited: requests.storage=4Gi"),
			func(w *world) { w.denies = nil }},
		{"limit range", "maximum storage usage per PersistentVolumeClaim is 512Mi, but request is 1Gi",
			refuse("maximum storage usage per PersistentVolumeClaim is 512Mi, but request is 1Gi"), func(w *world) { w.denies = nil }},
		{"failing driver", "PersistentVolumeClaim restore-back-uid-root for vm-disk: rpc error: no space left",
			func(w *world) { w.fails = "rpc error: no space left" }, func(w *world) { w.fails = "" }},
		{"driver that refuses the node", "rpc error: no space left", func(w *world) {
			w.fails = "rpc error: no space left"
			w.must(w.api.Delete(t.Context(), class.DeepCopy()))
			waits := class.DeepCopy()
			waits.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
			w.must(w.api.Create(t.Context(), waits))
		}, func(w *world) { w.fails = "" }},
		{"name that is taken", "PersistentVolumeClaim restore-back-uid-root is not this restore's: delete it", func(w *world) {
			w.must(w.api.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "restore-back-uid-root", UID: "x"}}))
		}, func(w *world) {
			w.must(w.api.Delete(t.Context(), read[corev1.PersistentVolumeClaim](w, "restore-back-uid-root")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			prepare := func() *world {
				w := newWorld(t, false, false)
				w.disks(cdiv1.Succeeded)
				w.snapshot()
				c.spoil(w)
				w.begin("back", snapshotv1.FailImmediate)
				w.until(c.says)
				w.asBefore()
				return w
			}
			w := prepare()
			c.mend(w)
			w.finish("back")
			w.asInSnapshot()
			w.nothingLeft()

			calm := prepare()
			begun := calm.faults.Writes
			calm.withdraw()
			calm.asBefore()
			for at := begun + 1; at <= calm.faults.Writes; at++ {
				for _, kind := range faults.Kinds {
					w := prepare()
					w.faults.At, w.faults.Kind = at, kind
					w.withdraw()
					w.asBefore()
					w.nothingLeft()
				}
			}
		})
	}
}

// TestWithdrawnAtEveryStep deletes a restore after every step that it makes, once gently and once with every write of the rest its last:
// the machine has all of its disks as they were, or all as they were in the snapshot, and nothing is left over.
func TestWithdrawnAtEveryStep(t *testing.T) {
	t.Parallel()
	for step := range 40 {
		w := newWorld(t, false, false)
		w.disks(cdiv1.Succeeded)
		w.snapshot()
		w.begin("back", snapshotv1.FailImmediate)
		going := true
		for range step {
			going = w.look("back")
		}
		committed := read[snapshotv1.VirtualMachineRestore](w, "back").Annotations[annCommitted] != ""
		w.faults.Kind, w.faults.At = faults.Crash, faults.Every
		w.withdraw()
		if committed {
			w.asInSnapshot()
		} else {
			w.asBefore()
		}
		w.nothingLeft()
		if !going {
			return
		}
	}
	t.Error("the restore was never complete")
}

// TestLostAtEveryStep: the snapshot, its content and a staged claim are deleted after every step. A restore that has begun
// continues with what it began with, or fails with the machine as it was.
func TestLostAtEveryStep(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(w *world){
		"snapshot": func(w *world) {
			w.must(client.IgnoreNotFound(w.api.Delete(context.Background(), &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "snap"}})))
			w.must(client.IgnoreNotFound(w.api.Delete(context.Background(), &snapshotv1.VirtualMachineSnapshotContent{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vmsnapshot-content-snap-uid"}})))
		},
		"volume snapshot": func(w *world) {
			w.must(w.api.Delete(context.Background(), &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vmsnapshot-snap-uid-volume-free"}}))
		},
		"staged claim": func(w *world) {
			w.must(client.IgnoreNotFound(w.api.Delete(context.Background(),
				&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "restore-back-uid-root"}})))
			w.storage()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for step := range 40 {
				w := newWorld(t, false, false)
				w.disks(cdiv1.Succeeded)
				w.snapshot()
				w.begin("back", snapshotv1.FailImmediate)
				going := true
				for range step {
					going = w.look("back")
				}
				r := read[snapshotv1.VirtualMachineRestore](w, "back")
				spoil(w)
				if len(r.Finalizers) == 0 && going && name == "snapshot" {
					w.until("SnapshotNotReady")
					w.asBefore()
					continue
				}
				w.finish("back")
				if failed := strings.HasPrefix(w.says(), "RestoreFailed"); failed && name == "volume snapshot" && r.Annotations[annCommitted] == "" {
					w.asBefore()
				} else {
					w.asInSnapshot()
				}
				w.nothingLeft()
				if !going {
					return
				}
			}
			t.Error("the restore was never complete")
		})
	}
}
