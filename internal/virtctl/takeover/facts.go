package takeover

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/claimorder"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/virtctl/takeover/plan"
)

// phases maps the phases of CDI to those of the plan.
var phases = map[cdiv1.DataVolumePhase]plan.Phase{
	cdiv1.PhaseUnset: plan.Waiting, cdiv1.Pending: plan.Waiting, cdiv1.PVCBound: plan.Waiting,
	cdiv1.WaitForFirstConsumer: plan.Waiting, cdiv1.PendingPopulation: plan.Waiting,

	cdiv1.ImportScheduled: plan.Moving, cdiv1.ImportInProgress: plan.Moving, cdiv1.CloneScheduled: plan.Moving,
	cdiv1.CloneInProgress: plan.Moving, cdiv1.SnapshotForSmartCloneInProgress: plan.Moving,
	cdiv1.CloneFromSnapshotSourceInProgress: plan.Moving, cdiv1.SmartClonePVCInProgress: plan.Moving,
	cdiv1.CSICloneInProgress: plan.Moving, cdiv1.ExpansionInProgress: plan.Moving, cdiv1.NamespaceTransferInProgress: plan.Moving,
	cdiv1.PrepClaimInProgress: plan.Moving, cdiv1.RebindInProgress: plan.Moving,

	cdiv1.UploadScheduled: plan.Receiving, cdiv1.UploadReady: plan.Receiving,
	cdiv1.Paused: plan.Paused, cdiv1.Succeeded: plan.Succeeded, cdiv1.Failed: plan.Failed,
}

// ofVolume returns what matters of a DataVolume, what it is filled from in the end, the claim of its name, and the one that is
// filled in its stead.
func ofVolume(v *cdiv1.DataVolume, from *cdiv1.DataVolumeSource, claim, prime *corev1.PersistentVolumeClaim) plan.Facts {
	f := plan.Facts{Phase: plan.Unclear, Leaving: v.DeletionTimestamp != nil, Claim: bound(claim)}
	if p, known := phases[v.Status.Phase]; known {
		f.Phase = p
	}
	if f.Phase == plan.Waiting && (prime != nil || cloning(claim)) {
		f.Phase = plan.Moving // CDI has begun, and not said so yet
	}
	if s := v.Spec.Source; s != nil {
		f.Foreign = s.VDDK != nil || s.Imageio != nil || len(v.Spec.Checkpoints) > 0 || s.Registry != nil && s.Registry.ImageStream != nil
	}
	if at, cloned := clonesource.OfSource(v.Namespace, from); cloned {
		f.Elsewhere = at.Namespace != v.Namespace
	}
	if claim == nil {
		return f
	}
	populated := claim.Annotations[names.PopulatedFor] == v.Name
	if !metav1.IsControlledBy(claim, v) && !populated {
		f.Claim = plan.Foreign
	}
	f.Leaving = f.Leaving || claim.DeletionTimestamp != nil
	f.Direct = claim.Spec.DataSourceRef == nil && claim.Spec.DataSource == nil
	f.Recorded = claim.Annotations[names.PodPhase] == string(corev1.PodSucceeded) && (f.Direct || claim.Annotations[names.PopulatedFor] != "")
	if f.Phase == plan.Succeeded && removes(prime) {
		f.Phase = plan.Moving
	}
	return f
}

// removes reports whether CDI is about to remove what it has filled in the stead of a claim: as long as it is there, it would
// look unfinished.
func removes(prime *corev1.PersistentVolumeClaim) bool {
	return prime != nil && prime.Annotations[names.Retain] != "true"
}

// cloning reports whether CDI is making a clone for the claim: it does that in claims and snapshots of other names, and notes its
// step on the claim.
func cloning(c *corev1.PersistentVolumeClaim) bool {
	if c == nil {
		return false
	}
	switch c.Annotations["cdi.kubevirt.io/clonePhase"] {
	case "", "Pending", "Succeeded", "Error": // it tries again after an error, and may never come further
		return false
	}
	return true
}

func bound(c *corev1.PersistentVolumeClaim) plan.Claim {
	switch {
	case c == nil:
		return plan.Absent
	case c.Status.Phase == corev1.ClaimBound:
		return plan.Bound
	case c.Status.Phase == corev1.ClaimLost:
		return plan.Lost
	}
	return plan.Unbound
}

// ofClaim returns the facts about a claim without a DataVolume that CDI fills; false if CDI does not fill it. prime is the claim
// that CDI fills in its place.
func ofClaim(c, prime *corev1.PersistentVolumeClaim) (f plan.Facts, ordered bool) {
	if strings.HasPrefix(c.Name, "prime-") && metav1.GetControllerOf(c) != nil {
		return f, false // a part of the claim that it is filled for
	}
	f = plan.Facts{Claim: bound(c), Leaving: c.DeletionTimestamp != nil, Recorded: c.Annotations[names.PodPhase] == string(corev1.PodSucceeded)}
	if clonesource.PopulatedByUs(c) {
		f.Recorded = c.Annotations[names.PopulatedFor] != "" // the phase is that of what was filled in its stead
		upload := c.Spec.DataSourceRef.Kind == cdiv1.VolumeUploadSourceRef
		switch {
		case f.Claim == plan.Bound && removes(prime):
			f.Phase = plan.Moving
		case f.Claim == plan.Bound || f.Claim == plan.Lost: // it is bound to a volume that was filled before, or never
			f.Phase = plan.Succeeded
		case prime != nil && upload:
			f.Phase = plan.Receiving
		case prime != nil || cloning(c):
			f.Phase = plan.Moving
		}
		return f, true
	}
	order, refused := claimorder.Of(c)
	if order == nil && refused == nil {
		return f, false
	}
	f.Direct, f.Foreign = true, refused != nil
	switch {
	case f.Recorded:
		f.Phase = plan.Succeeded
	case refused != nil || f.Claim != plan.Bound:
	case order.Source.Upload != nil:
		f.Phase = plan.Receiving
	default:
		f.Phase = plan.Moving
	}
	return f, true
}

// ofSource returns the plan for a DataSource. Its source and its labels stay; there is only one kind of reference that Berth does
// not support.
func ofSource(s, next *cdiv1.DataSource) plan.Plan {
	if _, broken := clonesource.End(s, next); broken == clonesource.Elsewhere {
		return plan.Plan{Verdict: plan.Refused, Why: "it stands for a DataSource of another namespace, which Berth does not follow: name one in its own"}
	}
	return plan.Plan{Verdict: plan.Taken, Why: "it names what it named"}
}

// ofCron returns the plan for a DataImportCron.
func ofCron(c *cdiv1.DataImportCron) plan.Plan {
	if s := c.Spec.Template.Spec.Source; s != nil && s.Registry != nil && s.Registry.ImageStream != nil {
		return plan.Plan{Verdict: plan.Refused, Why: "it follows an image stream, which Berth does not do: name the image in registry.url, or delete it"}
	}
	return plan.Plan{Verdict: plan.Taken, Why: "Berth asks its registry by the same schedule, and keeps what was imported"}
}
