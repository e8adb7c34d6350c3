package datavolume

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestMadeAgain: a volume that is made again while the claim of the deleted one is still there waits for its end, takes nothing over even if it
// may adopt claims, and is filled afterwards.
func TestMadeAgain(t *testing.T) {
	v := newVolume(&cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}})
	v.Annotations = map[string]string{names.Adopt: "true"}
	earlier := newVolume(nil)
	earlier.UID = "earlier-uid"
	old := filltest.Bound(filltest.Team, volumeName)
	old.UID = "old-claim"
	old.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(earlier, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	old.Annotations = map[string]string{names.PodPhase: string(corev1.PodSucceeded)}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), v, old}, Reports: []task.Report{filltest.Done()}})
	r := build(w)
	w.Run(volumeName, r)
	is := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName)
	if is.UID != old.UID || len(is.OwnerReferences) != 1 || is.OwnerReferences[0].UID != earlier.UID || is.DeletionTimestamp != nil {
		t.Errorf("the claim of the deleted volume was touched: %+v", is.ObjectMeta)
	}
	said := volumeIn(w).Status
	if ready := said.Conditions[2]; said.Phase != cdiv1.Pending || ready.Reason != "ErrResourceMarkedForDeletion" || !strings.Contains(ready.Message, "of this name that was deleted") {
		t.Errorf("meanwhile it is %s: %+v", said.Phase, ready)
	}
	w.Must(w.API.Delete(t.Context(), is))
	w.Run(volumeName, r)
	if now := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName); volumeIn(w).Status.Phase != cdiv1.Succeeded || now.UID == old.UID || w.Tries != 1 {
		t.Errorf("afterwards it is %s after %d workers", volumeIn(w).Status.Phase, w.Tries)
	}
}

// TestClaimFollows: the claim of a volume whose data moved with a machine is neither made nor filled again, in any state in which it can be
// meanwhile, and is said to get its volume.
func TestClaimFollows(t *testing.T) {
	pending := filltest.Bound(filltest.Team, volumeName)
	pending.Status.Phase = corev1.ClaimPending
	leaving := filltest.Bound(filltest.Team, volumeName)
	leaving.DeletionTimestamp, leaving.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"kubernetes.io/pvc-protection"}
	for name, c := range map[string]*corev1.PersistentVolumeClaim{"absent": nil, "pending": pending, "being deleted": leaving} {
		v := newVolume(&cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}})
		pv, err := replacedclaim.WithRecord(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "moved"}},
			replacedclaim.Record{Namespace: filltest.Team, Claim: volumeName, Turn: 1})
		if err != nil {
			t.Fatal(err)
		}
		objects := []client.Object{filltest.Class(filltest.AtOnce), v, pv}
		if c != nil {
			objects = append(objects, c)
		}
		w := filltest.New(t, filltest.Scene{Objects: objects, Reports: []task.Report{filltest.Done()}})
		if _, err := build(w).Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(v)}); err != nil {
			t.Fatal(err)
		}
		if said := volumeIn(w).Status; len(said.Conditions) < 3 || said.Conditions[2].Reason != "ClaimFollows" || w.Tries != 0 {
			t.Errorf("%s: it is %+v after %d workers", name, said, w.Tries)
		}
	}
}
