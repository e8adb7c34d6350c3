package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/decide/snapshot"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/pkg/claim"
)

// annData on a volume of the test is its content: the name of a VolumeSnapshot, or what the machine wrote since.
const annData = "test/data"

// volumeOf returns a volume that is bound to a claim.
func volumeOf(name string, c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annData: "present"}}}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "disks", VolumeHandle: name}
	return pv
}

// provision plays the volume controller and the driver: claims are bound to the volumes that are given to them, or get new ones.
func (w *world) provision() {
	ctx := context.Background()
	var claims corev1.PersistentVolumeClaimList
	w.must(w.api.List(ctx, &claims))
	for i := range claims.Items {
		c := &claims.Items[i]
		if c.DeletionTimestamp != nil {
			continue
		}
		phase := c.Status.Phase
		if c.Spec.VolumeName != "" {
			pv, err := cluster.Get[corev1.PersistentVolume](ctx, w.api, "", c.Spec.VolumeName)
			w.must(err)
			switch {
			case belongsTo(pv, c):
				phase = corev1.ClaimBound
			case phase == corev1.ClaimBound, pv == nil:
				phase = corev1.ClaimLost
			}
		} else if phase != corev1.ClaimBound && w.makes(c) {
			pv := volumeOf("pv-of-"+c.Name, c)
			if c.Spec.DataSourceRef != nil {
				pv.Annotations[annData] = c.Spec.DataSourceRef.Name
			}
			w.must(w.api.Create(ctx, pv))
			c.Spec.VolumeName = pv.Name
			w.must(w.api.Update(ctx, c))
			phase = corev1.ClaimBound
		}
		if phase != c.Status.Phase {
			c.Status.Phase = phase
			w.must(w.api.Status().Update(ctx, c))
		}
	}
}

// makes reports whether there is a class whose driver makes a volume for the claim now. One that does not says why.
func (w *world) makes(c *corev1.PersistentVolumeClaim) bool {
	ctx := context.Background()
	if c.Spec.StorageClassName == nil {
		return true // one of the test's own
	}
	class, err := cluster.Get[storagev1.StorageClass](ctx, w.api, "", *c.Spec.StorageClassName)
	w.must(err)
	if class == nil || claim.Waits(class) && c.Annotations[names.SelectedNode] == "" {
		return false
	}
	if w.fails == "" {
		return true
	}
	e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name + ".failed"}, Type: corev1.EventTypeWarning,
		Reason: "ProvisioningFailed", Message: w.fails, LastTimestamp: metav1.NewTime(w.clock.Now()), InvolvedObject: corev1.ObjectReference{UID: c.UID}}
	if err := w.api.Create(ctx, e); !apierrors.IsAlreadyExists(err) {
		w.must(err)
	}
	if claim.Waits(class) { // that is how a provisioner says that the node is none
		delete(c.Annotations, names.SelectedNode)
		w.must(w.api.Update(ctx, c))
	}
	return false
}

// reclaim removes volumes whose claim is gone, unless they are to be kept.
func (w *world) reclaim() {
	ctx := context.Background()
	var claims corev1.PersistentVolumeClaimList
	w.must(w.api.List(ctx, &claims))
	uids := map[types.UID]bool{}
	for _, c := range claims.Items {
		uids[c.UID] = true
	}
	var volumes corev1.PersistentVolumeList
	w.must(w.api.List(ctx, &volumes))
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		if ref := pv.Spec.ClaimRef; ref != nil && !uids[ref.UID] && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			w.must(w.api.Delete(ctx, pv))
		}
	}
}

// volumes returns the volumes with their content, their claims and their reclaim policies.
func (w *world) volumes() []string {
	w.reclaim()
	var list corev1.PersistentVolumeList
	w.must(w.api.List(context.Background(), &list))
	var out []string
	for _, pv := range list.Items {
		out = append(out, fmt.Sprintf("%s with %s for %s, %s, %v", pv.Name, pv.Annotations[annData], pv.Spec.ClaimRef.UID,
			pv.Spec.PersistentVolumeReclaimPolicy, pv.Labels))
	}
	slices.Sort(out)
	return out
}

// neverLost holds at every moment of a restore in place: before it is committed the machine has its claims and volumes, and before
// every claim has its new volume, bound under its name, nothing of the old volumes is gone.
func (w *world) neverLost() {
	w.t.Helper()
	w.reclaim()
	r := read[snapshotv1.VirtualMachineRestore](w, "back")
	if r == nil || r.Spec.Target.Name != "vm" || over(r) != snapshot.NotOver {
		return
	}
	all := map[string]string{"vm-disk": "pv"}
	for _, name := range w.more {
		all[name] = "pv-" + name
	}
	restored := true
	for name := range all {
		c := read[corev1.PersistentVolumeClaim](w, name)
		restored = restored && c != nil && c.Annotations[snapshotcontent.AnnRestore] == string(r.UID) && c.Status.Phase == corev1.ClaimBound
		if r.Annotations[annCommitted] == "" && (c == nil || !strings.HasPrefix(string(c.UID), "old") || c.DeletionTimestamp != nil) {
			w.t.Errorf("claim %s is gone before the restore is committed: %s", name, w.says())
		}
	}
	for name, volume := range all {
		pv, err := cluster.Get[corev1.PersistentVolume](context.Background(), w.api, "", volume)
		w.must(err)
		if pv == nil && !restored {
			w.t.Errorf("the volume of claim %s is gone before its successors have their names: %s", name, w.says())
		}
	}
}

// says returns what the restore says.
func (w *world) says() string {
	r := read[snapshotv1.VirtualMachineRestore](w, "back")
	if r == nil {
		return "nothing: there is none"
	}
	for _, c := range r.Status.Conditions {
		if c.Type == snapshotv1.ConditionReady {
			return c.Reason + ": " + c.Message
		}
	}
	return "nothing"
}
