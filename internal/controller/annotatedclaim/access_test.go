package annotatedclaim

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestAMachineRunsFromTheClaim: what is ordered for a claim that a machine runs from waits until the machine has ended, and says why: a
// worker would write over the disk under the guest.
func TestAMachineRunsFromTheClaim(t *testing.T) {
	for order, it := range map[string]*corev1.PersistentVolumeClaim{"import": importing("https://example.com/x"), "upload": target(nil)} {
		t.Run(order, func(t *testing.T) {
			it.Spec.VolumeName = "pv-disk"
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-disk", UID: "pv-disk"}, Spec: corev1.PersistentVolumeSpec{
				ClaimRef: &corev1.ObjectReference{Namespace: filltest.Team, Name: "disk", UID: it.UID}}}
			w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), it, pv}, Reports: []task.Report{filltest.Done()}})
			id := filltest.DiskOf(w, "pv-disk")
			has := &accessv1.DiskAccess{ObjectMeta: metav1.ObjectMeta{Name: id.Name()}, Spec: accessv1.DiskAccessSpec{Disk: id.String(),
				Holders: []accessv1.Holder{{Namespace: filltest.Team, Machine: "vm", UID: "run", Pod: "virt-launcher-vm", PodUID: "launcher",
					Node: filltest.Node, Mode: accessv1.WriteExclusive, ClaimUID: it.UID}}}}
			w.Must(w.API.Create(t.Context(), has))
			r := build(w)
			w.Run("disk", r)
			said := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk").Annotations[cluster.AnnState]
			if pods := fmt.Sprint(w.Left()["pods"]); pods != "[]" || said != string(state.ClaimInUse) {
				t.Fatalf("it says %s, and there are pods %s", said, pods)
			}
			w.Must(w.API.Delete(t.Context(), has))
			w.Run("disk", r)
			if w.Tries != 1 {
				t.Errorf("after the machine had ended there were %d tries", w.Tries)
			}
		})
	}
}
