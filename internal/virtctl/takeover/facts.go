package takeover

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/annotated"
	"github.com/berth-vm/berth/internal/decide/takeover"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/origin"
)

// phases is what CDI's words for a volume's state come to.
var phases = map[cdiv1.DataVolumePhase]takeover.Phase{
	cdiv1.PhaseUnset: takeover.Waiting, cdiv1.Pending: takeover.Waiting, cdiv1.PVCBound: takeover.Waiting,
	cdiv1.WaitForFirstConsumer: takeover.Waiting, cdiv1.PendingPopulation: takeover.Waiting,

	cdiv1.ImportScheduled: takeover.Moving, cdiv1.ImportInProgress: takeover.Moving, cdiv1.CloneScheduled: takeover.Moving,
	cdiv1.CloneInProgress: takeover.Moving, cdiv1.SnapshotForSmartCloneInProgress: takeover.Moving,
	cdiv1.CloneFromSnapshotSourceInProgress: takeover.Moving, cdiv1.SmartClonePVCInProgress: takeover.Moving,
	cdiv1.CSICloneInProgress: takeover.Moving, cdiv1.ExpansionInProgress: takeover.Moving, cdiv1.NamespaceTransferInProgress: takeover.Moving,
	cdiv1.PrepClaimInProgress: takeover.Moving, cdiv1.RebindInProgress: takeover.Moving,

	cdiv1.UploadScheduled: takeover.Receiving, cdiv1.UploadReady: takeover.Receiving,
	cdiv1.Paused: takeover.Paused, cdiv1.Succeeded: takeover.Succeeded, cdiv1.Failed: takeover.Failed,
}

// ofVolume is what matters of a DataVolume, the claim of its name, and the one that is filled in its stead.
func ofVolume(v *cdiv1.DataVolume, claim, prime *corev1.PersistentVolumeClaim) takeover.Facts {
	f := takeover.Facts{Phase: takeover.Unclear, Leaving: v.DeletionTimestamp != nil, Claim: bound(claim)}
	if p, known := phases[v.Status.Phase]; known {
		f.Phase = p
	}
	if f.Phase == takeover.Waiting && prime != nil {
		f.Phase = takeover.Moving // CDI has begun, and not said so yet
	}
	if s := v.Spec.Source; s != nil {
		f.Foreign = s.VDDK != nil || s.Imageio != nil || len(v.Spec.Checkpoints) > 0
	}
	if claim == nil {
		return f
	}
	populated := claim.Annotations[names.PopulatedFor] == v.Name
	if !metav1.IsControlledBy(claim, v) && !populated {
		f.Claim = takeover.Foreign
	}
	f.Leaving = f.Leaving || claim.DeletionTimestamp != nil
	f.Recorded = claim.Annotations[names.PodPhase] == string(corev1.PodSucceeded)
	f.Direct = claim.Spec.DataSourceRef == nil && claim.Spec.DataSource == nil
	return f
}

func bound(c *corev1.PersistentVolumeClaim) takeover.Claim {
	switch {
	case c == nil:
		return takeover.Absent
	case c.Status.Phase == corev1.ClaimBound:
		return takeover.Bound
	case c.Status.Phase == corev1.ClaimLost:
		return takeover.Lost
	}
	return takeover.Unbound
}

// ofClaim is what matters of a claim without a DataVolume that CDI fills; false if it fills it not. prime is what CDI fills in its stead.
func ofClaim(c, prime *corev1.PersistentVolumeClaim) (f takeover.Facts, ordered bool) {
	if strings.HasPrefix(c.Name, "prime-") && metav1.GetControllerOf(c) != nil {
		return f, false // a part of the claim that it is filled for
	}
	f = takeover.Facts{Claim: bound(c), Leaving: c.DeletionTimestamp != nil, Recorded: c.Annotations[names.PodPhase] == string(corev1.PodSucceeded)}
	if origin.PopulatedByUs(c) {
		f.Recorded = f.Recorded || c.Annotations[names.PopulatedFor] != ""
		upload := c.Spec.DataSourceRef.Kind == cdiv1.VolumeUploadSourceRef
		switch {
		case f.Claim == takeover.Bound || f.Claim == takeover.Lost: // it is bound to a volume that was filled before, or never
			f.Phase = takeover.Succeeded
		case prime != nil && upload:
			f.Phase = takeover.Receiving
		case prime != nil:
			f.Phase = takeover.Moving
		}
		return f, true
	}
	order, refused := annotated.Of(c)
	if order == nil && refused == nil {
		return f, false
	}
	f.Direct, f.Foreign = true, refused != nil
	switch {
	case f.Recorded:
		f.Phase = takeover.Succeeded
	case refused != nil || f.Claim != takeover.Bound:
	case order.Source.Upload != nil:
		f.Phase = takeover.Receiving
	default:
		f.Phase = takeover.Moving
	}
	return f, true
}
