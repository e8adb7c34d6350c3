package restore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/names"
)

// holding returns a record in which a holder has a volume of the test.
func holding(volume string, h accessv1.Holder) *accessv1.DiskAccess {
	id := identity.Volume(volumeOf(volume, &corev1.PersistentVolumeClaim{}))
	return &accessv1.DiskAccess{ObjectMeta: metav1.ObjectMeta{Name: id.Name()}, Spec: accessv1.DiskAccessSpec{Holders: []accessv1.Holder{h}}}
}

// TestRestoreWaitsForUsers: a claim that a pod or another machine uses is not taken from them, and it is said who they are.
// Nothing is deleted before, and the restore continues when they are gone.
func TestRestoreWaitsForUsers(t *testing.T) {
	pod := func(claim string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "backup"}, Status: corev1.PodStatus{Phase: phase},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "x", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: true}}}}}}
	}
	for _, c := range []struct {
		name, says string
		user       client.Object
	}{
		{"a pod", "ClaimsInUse: waiting until nobody uses the claims that are to be replaced: Pod backup uses PersistentVolumeClaim mine",
			pod("mine", corev1.PodRunning)},
		{"a pod that starts", "Pod backup uses PersistentVolumeClaim vm-disk", pod("vm-disk", corev1.PodPending)},
		{"a machine", "VirtualMachineInstance other has the volume of PersistentVolumeClaim mine",
			holding("pv-mine", accessv1.Holder{Namespace: "team", Machine: "other", PodUID: "x"})},
		{"a worker", "Pod export has the volume of PersistentVolumeClaim mine",
			holding("pv-mine", accessv1.Holder{Namespace: "team", Pod: "export", PodUID: "x"})},
		{"somebody elsewhere", "a pod of another namespace has the volume of PersistentVolumeClaim mine",
			holding("pv-mine", accessv1.Holder{Namespace: "others", Machine: "secret", PodUID: "x"})},
		{"a pod that has ended", "RestoreComplete", pod("mine", corev1.PodSucceeded)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, false, false)
			w.disks(cdiv1.Succeeded)
			w.snapshot()
			w.must(w.api.Create(t.Context(), c.user))
			w.begin("back", snapshotv1.FailImmediate)
			w.until(c.says)
			if strings.Contains(c.says, "Complete") {
				return
			}
			w.look("back")
			w.asBefore()
			w.must(w.api.Delete(t.Context(), c.user))
			w.finish("back")
			w.asInSnapshot()
			w.nothingLeft()
		})
	}
}

// TestRefusedAfterCommit: when a claim was deleted and its successor is refused, the volumes as they were are there and named, and
// the restore continues when it can, also if it was deleted.
func TestRefusedAfterCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, false)
	w.disks(cdiv1.Succeeded)
	w.snapshot()
	w.denies = func(obj client.Object) error {
		if obj.GetName() == "mine" {
			return apierrors.NewForbidden(claimsKind, obj.GetName(), errors.New("exceeded quota: team, requested: count=1"))
		}
		return nil
	}
	w.begin("back", snapshotv1.FailImmediate)
	w.until("ClaimsNotReplaced")
	for _, want := range []string{"PersistentVolumeClaim mine is refused: exceeded quota: team", "kept on PersistentVolume pv of vm-disk, pv-lent of lent, pv-mine of mine, pv-os of os"} {
		if !strings.Contains(w.says(), want) {
			t.Errorf("it says %q, not %q", w.says(), want)
		}
	}
	w.must(w.api.Delete(t.Context(), read[snapshotv1.VirtualMachineRestore](w, "back")))
	w.look("back")
	w.denies = nil
	w.finish("back")
	w.asInSnapshot()
	w.nothingLeft()
}

// TestStrangerAfterCommit: a claim that a user makes under the name of one that was just deleted is left alone, and the restore
// says what to do.
func TestStrangerAfterCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, false)
	w.snapshot()
	w.begin("back", snapshotv1.FailImmediate)
	w.until("ReplacingClaims")
	for range 5 {
		if read[corev1.PersistentVolumeClaim](w, "vm-disk") == nil {
			break
		}
		w.look("back")
	}
	other := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vm-disk", UID: "strange",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Other", Name: "other", UID: "other", Controller: ptr.To(true)}}}}
	w.must(w.api.Create(t.Context(), other))
	w.until("ClaimsNotReplaced")
	if !strings.Contains(w.says(), "PersistentVolumeClaim vm-disk is owned by Other other") || !strings.Contains(w.says(), "kept on PersistentVolume pv") {
		t.Errorf("it says %q", w.says())
	}
	w.must(w.api.Delete(t.Context(), other))
	w.finish("back")
	w.asInSnapshot()
}

// TestTwoRestores: the second restore of a machine waits for the first that has begun, and then replaces what that one made.
func TestTwoRestores(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, false)
	w.snapshot()
	w.begin("back", snapshotv1.FailImmediate)
	w.look("back")
	w.begin("again", snapshotv1.FailImmediate)
	w.look("again")
	r := read[snapshotv1.VirtualMachineRestore](w, "again")
	if at := slices.IndexFunc(r.Status.Conditions, func(c snapshotv1.Condition) bool { return c.Reason == "AnotherRestore" }); at < 0 ||
		!strings.Contains(r.Status.Conditions[at].Message, "VirtualMachineRestore back") {
		t.Errorf("it says %+v", r.Status.Conditions)
	}
	w.finish("back")
	w.asInSnapshot()
	w.finish("again")
	w.asInSnapshot()
	w.nothingLeft()
	if c := read[corev1.PersistentVolumeClaim](w, "vm-disk"); c.Annotations[snapshotcontent.AnnRestore] != "second-uid" {
		t.Errorf("the claim is of restore %s", c.Annotations[snapshotcontent.AnnRestore])
	}
}

// TestNamespaceLeaves: a restore that cannot make anything any more does not keep its namespace.
func TestNamespaceLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, false)
	w.snapshot()
	w.begin("back", snapshotv1.FailImmediate)
	w.until("ReplacingClaims")
	w.must(w.api.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}))
	w.withdraw()
	w.nothingLeft()
}

// TestForgedStagedClaim: a claim under the name of the restore's that names another user's volume gets no volume.
func TestForgedStagedClaim(t *testing.T) {
	w := newWorld(t, false, false)
	w.snapshot()
	theirs := volumeOf("theirs", &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "others", Name: "secret", UID: "secret"}})
	theirs.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	w.must(w.api.Create(t.Context(), theirs))
	forged := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "restore-back-uid-root", UID: "forged",
		Labels: map[string]string{labelStaged: "back-uid"}, Annotations: map[string]string{snapshotcontent.AnnRestore: "back-uid"}}}
	forged.Spec.VolumeName = "theirs"
	forged.Status.Phase = corev1.ClaimBound
	w.must(w.api.Create(t.Context(), forged))
	w.begin("back", snapshotv1.FailImmediate)
	for range 10 {
		w.look("back")
	}
	pv, err := cluster.Get[corev1.PersistentVolume](t.Context(), w.api, "", "theirs")
	if err != nil || pv.Spec.ClaimRef.UID != "secret" || len(pv.Labels) > 0 {
		t.Errorf("the volume of somebody else is %+v, %v", pv, err)
	}
}

// TestNodeOfVolume: a volume of a class that waits for a consumer is made where it was, or else where the snapshot is and the machine
// may run; and a node that the provisioner refuses is tried again later.
func TestNodeOfVolume(t *testing.T) {
	waits := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "disks",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	for _, c := range []struct {
		name, want string
		spoil      func(w *world)
	}{
		{"as it was", "node1", func(*world) {}},
		{"the node is gone, where the machine may run", "node3", func(w *world) {
			w.must(w.api.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}))
			content := read[snapshotv1.VirtualMachineSnapshotContent](w, "vmsnapshot-content-snap-uid")
			content.Spec.Source.VirtualMachine.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "c"}
			w.must(w.api.Update(t.Context(), content))
		}},
		{"nobody chose one, where its volume is", "node2", func(w *world) {
			content := read[snapshotv1.VirtualMachineSnapshotContent](w, "vmsnapshot-content-snap-uid")
			delete(content.Spec.VolumeBackups[0].PersistentVolumeClaim.ObjectMeta.Annotations, names.SelectedNode)
			w.must(w.api.Update(t.Context(), content))
			pv, err := cluster.Get[corev1.PersistentVolume](t.Context(), w.api, "", "pv")
			w.must(err)
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}}}}}}
			w.must(w.api.Update(t.Context(), pv))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, false, false)
			for i, zone := range []string{"b", "c"} {
				w.must(w.api.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node%d", i+2), Labels: map[string]string{"zone": zone}}}))
			}
			w.snapshot()
			w.must(w.api.Delete(t.Context(), waits.DeepCopy()))
			w.must(w.api.Create(t.Context(), waits.DeepCopy()))
			c.spoil(w)
			w.fails = "no room"
			w.begin("back", snapshotv1.FailImmediate)
			_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "team", Name: "back"}})
			w.must(err)
			if got := read[corev1.PersistentVolumeClaim](w, "restore-back-uid-root").Annotations[names.SelectedNode]; got != c.want {
				t.Errorf("it is made on %q", got)
			}
			w.storage() // the provisioner takes the choice back
			tried := w.clock.Now()
			for read[corev1.PersistentVolumeClaim](w, "restore-back-uid-root").Annotations[names.SelectedNode] == "" {
				if _, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "team", Name: "back"}}); err != nil {
					t.Fatal(err)
				}
				w.clock.SetTime(w.clock.Now().Add(time.Second))
				if w.clock.Since(tried) > time.Minute {
					t.Fatalf("it is not tried again: %s", w.says())
				}
			}
			if w.clock.Since(tried) < placeAgain {
				t.Errorf("it is tried again after %s", w.clock.Since(tried))
			}
			w.fails = ""
			w.finish("back")
			w.asInSnapshot()
			if got := read[corev1.PersistentVolumeClaim](w, "vm-disk").Annotations[names.SelectedNode]; got != c.want {
				t.Errorf("the claim says that it is on %q", got)
			}
		})
	}
}

// TestRunningUntilVolumesAreThere: a machine that is to be stopped runs until every volume is there, and on if one cannot be made.
func TestRunningUntilVolumesAreThere(t *testing.T) {
	w := newWorld(t, true, false)
	w.snapshot()
	w.fails = "no room"
	w.begin("back", snapshotv1.StopTarget)
	w.until("no room")
	i, _ := instance()
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(i), i); err != nil {
		t.Errorf("the machine was stopped: %v", err)
	}
	w.asBefore()
	w.withdraw()
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(i), i); err != nil {
		t.Errorf("the machine was stopped: %v", err)
	}
}
