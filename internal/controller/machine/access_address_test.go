package machine

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/state"
)

const target = "iqn.2026-01.example:golden.os"

// lun makes the volume of a claim a LUN, bound to the claim of a namespace.
func (w *world) lun(pv, namespace string) {
	w.t.Helper()
	v, err := cluster.Get[corev1.PersistentVolume](context.Background(), w.api, "", pv)
	w.must(err)
	v.Spec.ISCSI = &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: target, Lun: 1}
	v.Spec.ClaimRef.Namespace = namespace
	w.must(w.api.Update(context.Background(), v))
}

// TestAReaderThatOnlyNamesTheDisk: a machine of another namespace that names a LUN to read it keeps nobody from it who has it through a claim,
// before its guest has started: nothing says that the server lets it in.
func TestAReaderThatOnlyNamesTheDisk(t *testing.T) {
	ctx := context.Background()
	for name, row := range map[string]struct {
		ready corev1.ConditionStatus
		claim string
		runs  bool
	}{
		"it has not started":              {corev1.ConditionFalse, "", true},
		"it runs":                         {corev1.ConditionTrue, "", false},
		"it has the disk through a claim": {corev1.ConditionFalse, "theirs", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := sharers(t, nil)
			w.lun("pv-one", ns)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "mallory", Name: "launcher", UID: "launcher"},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: row.ready}}}}
			w.must(w.api.Create(ctx, pod))
			id := identity.ISCSI(target, 1)
			w.must(w.api.Create(ctx, &accessv1.DiskAccess{ObjectMeta: metav1.ObjectMeta{Name: id.Name()}, Spec: accessv1.DiskAccessSpec{Disk: id.String(),
				Holders: []accessv1.Holder{{Namespace: "mallory", Machine: "vm", UID: "run", Pod: "launcher", PodUID: "launcher", Node: "node1",
					Mode: accessv1.ReadShared, ClaimUID: types.UID(row.claim)}}}}))
			w.both([]string{"a"}, false)
			if runs := len(w.going()) == 1; runs != row.runs {
				t.Errorf("%v run; a says %s: %v", w.going(), w.named("a").Status.Reason, w.named("a").Status.Conditions)
			}
		})
	}
}

// TestAWriterThatOnlyNamesTheDisk: a disk that a claim of another namespace is bound to cannot be written to by its address, nor kept from the claim.
func TestAWriterThatOnlyNamesTheDisk(t *testing.T) {
	for mode, runs := range map[string]bool{"": false, string(accessv1.WriteShared): false, string(accessv1.ReadShared): true} {
		t.Run(mode, func(t *testing.T) {
			w := sharers(t, func(_ string, i *kubevirt.VirtualMachineInstance) {
				i.Spec.Volumes = []kubevirt.Volume{{Name: "lun", AccessMode: kubevirt.AccessMode(mode), VolumeSource: kubevirt.VolumeSource{ISCSI: &kubevirt.ISCSISource{
					Host: kubevirt.NetworkHost{Name: "fake"}, Portal: target, LUN: 1}}}}
				i.Spec.Domain.Devices.Disks = nil
			})
			w.lun("pv-one", "victim")
			w.both([]string{"a"}, false)
			i := w.named("a")
			if (len(w.going()) == 1) != runs || !runs && (i.Status.Reason != string(state.DiskInUse) ||
				!strings.Contains(i.Status.Conditions[0].Message, "of another namespace is bound to it") || strings.Contains(i.Status.Conditions[0].Message, "victim")) {
				t.Errorf("%v run; it says %s: %v", w.going(), i.Status.Reason, i.Status.Conditions)
			}
			if !runs && len(w.records()) != 0 {
				t.Errorf("records: %v", w.records())
			}
		})
	}
}
