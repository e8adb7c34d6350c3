package instance

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/report"
)

// tellKept makes an event of every copy that was kept, or was not, since the last status.
func (r *Reconciler) tellKept(s *observed.Instance) {
	for _, k := range s.KeptCopies {
		known := slices.ContainsFunc(s.Object.Status.VolumeStatus, func(x kubevirt.VolumeStatus) bool {
			return x.Name == k.Volume && x.Copy != nil && x.Copy.Keep != nil && x.Copy.Keep.ClaimName == k.Name && x.Copy.Keep.Reason == k.Plan.Reason
		})
		text := fmt.Sprintf("volume %s: %s", k.Volume, report.KeepText(s, k))
		switch {
		case known:
		case k.Plan.Reason == kubevirt.KeepDone:
			r.Cluster.Event(s.Object, corev1.EventTypeNormal, "Kept", text)
		case k.Plan.Reason == kubevirt.KeepFailed || k.Plan.Reason == kubevirt.KeepNotForIt:
			r.Cluster.Event(s.Object, corev1.EventTypeWarning, "NotKept", text)
		}
	}
}
