package fill

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/pkg/claim"
)

// Facts returns what a decision needs to know of what was seen.
func (s *Seen) Facts() volume.Facts {
	f := volume.Facts{
		Claim: observedClaim{s}.claimFact(), Data: s.dataFact(), Flow: s.flow(), Origin: s.clone.Origin(), Worker: s.workerFact(),
		RetryDue: !s.now.Before(s.nextTry()), Access: s.access,
	}
	if s.small != "" && f.Origin != volume.Unfit {
		f.Origin, f.Flow = volume.Larger, volume.Clone
	}
	return f
}

func (s *Seen) flow() volume.Flow {
	src := s.source
	switch {
	case src == nil:
		return volume.External
	case src.Upload != nil:
		return volume.Upload
	case src.PVC != nil, src.Snapshot != nil:
		return s.clone.Flow()
	case stages{s}.staged():
		return volume.Staged
	}
	return volume.Import
}

// observedClaim makes the facts about the claim of an order and its volume.
type observedClaim struct{ *Seen }

func (s observedClaim) claimFact() volume.Claim {
	switch {
	case s.moved:
		return volume.Following
	case s.claim == nil && s.lacks != nil:
		return volume.Incomplete
	case s.claim == nil:
		return volume.Absent
	case s.claim.DeletionTimestamp != nil, s.ofEarlier():
		return volume.Leaving
	case !s.order.owns(s.claim):
		return s.strangerFact()
	}
	switch s.claim.Status.Phase {
	case corev1.ClaimLost:
		return volume.Lost
	case corev1.ClaimBound:
		if s.awaitsPopulator() {
			return volume.Unbound
		}
		return volume.Bound
	case corev1.ClaimPending:
	}
	return s.unboundFact()
}

// ofEarlier reports whether the claim is that of a DataVolume of this name that was deleted. It is garbage-collected, but does
// not say so yet.
func (s observedClaim) ofEarlier() bool {
	_, is := s.order.For.(*cdiv1.DataVolume)
	return is && clonesource.OfEarlierVolume(s.claim, s.order.Name, s.order.For.GetUID())
}

// awaitsPopulator reports whether the claim of a volume names one of our sources and is bound, and is filled in place only now.
func (s observedClaim) awaitsPopulator() bool {
	external := s.order.Spec.Source == nil && s.order.Spec.SourceRef == nil
	return external && !s.order.itself(s.claim) && clonesource.PopulatedByUs(s.claim) && s.claim.Annotations[names.PopulatedFor] == "" &&
		s.claim.Annotations[names.PodPhase] != string(corev1.PodSucceeded)
}

// unboundFact returns the one home of WaitForFirstConsumer on the data side.
func (s observedClaim) unboundFact() volume.Claim {
	_, immediate := s.order.Annotations[names.Immediate]
	switch {
	case !s.waits(), s.order.Placed:
		return volume.Unbound
	case immediate, s.besideBackup, !s.settings.Enabled(config.HonorWaitForFirstConsumer):
		return volume.Waiting
	}
	return volume.Held
}

// waits reports whether the claim's class binds it when it has a consumer.
func (s observedClaim) waits() bool { return claim.Waits(s.class) }

// strangerFact returns the fact about a claim that this volume does not own.
func (s observedClaim) strangerFact() volume.Claim {
	if metav1.GetControllerOf(s.claim) != nil {
		return volume.Foreign
	}
	said := s.claim.Annotations[names.PopulatedFor] == s.order.Name || s.prePopulated() || clonesource.ComesBack(s.claim, s.order.Name, &s.order.Spec)
	asked := s.order.Annotations[names.Adopt] == "true" || s.claim.Annotations[names.Adopt] == "true"
	refused := s.order.Annotations[names.Adopt] == "false"
	switch {
	case said:
		return volume.Adoptable
	case !asked && (refused || !s.settings.Enabled(config.DataVolumeClaimAdoption)):
		return volume.Foreign
	case s.unusable() != "":
		return volume.Unusable
	}
	return volume.Adoptable
}

// unusable returns which property that the volume asks for an existing claim lacks, or "".
func (s observedClaim) unusable() string {
	if asked := s.asked(); !asked.IsZero() {
		has := s.claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if has.Cmp(asked) < 0 {
			return "it asks for " + has.String() + " and the DataVolume for " + asked.String()
		}
	}
	return ""
}

func (s *Seen) prePopulated() bool {
	name, said := s.order.Annotations[names.PrePopulated]
	return said && (name == "" || name == "true" || name == s.order.Name)
}

func (s *Seen) dataFact() volume.Data {
	switch {
	case s.claim == nil:
		if s.prePopulated() {
			return volume.Kept
		}
		if s.reserved != nil {
			return volume.Found
		}
		return volume.None
	case s.claim.Annotations[names.PodPhase] == string(corev1.PodSucceeded):
		if s.order.keeps(s.claim) {
			return volume.Kept
		}
		return volume.Present
	case s.claim.Annotations[names.Fatal] == "true":
		return volume.Condemned
	case observedClaim{s}.found():
		return volume.Found
	case observedClaim{s}.unwritable() != "":
		return volume.Unknown
	}
	return stages{s}.stageFact()
}

func (s *Seen) workerFact() volume.Worker {
	pod := s.worker
	switch {
	case pod == nil:
		return volume.NoWorker
	case pod.DeletionTimestamp != nil, pod.Labels[render.LabelClaimUID] != string(s.claim.UID):
		return volume.Going
	}
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		if s.order.Annotations[names.Retain] == "true" {
			return volume.Retained
		}
		return volume.Done
	case corev1.PodFailed:
		// A wrong stage can be mended, and what the stages before it brought is not given up for it.
		later := s.worker.Annotations[names.CheckpointPrevious] != ""
		if s.report != nil && s.report.Outcome == task.Fatal && !later {
			return volume.Fatal
		}
		return volume.Failed
	case corev1.PodRunning:
		if s.cutOff {
			return volume.CutOff
		}
		// One that was ready is on its way out when it is not any more: a client is not to be told to wait again.
		if s.source != nil && s.source.Upload != nil && !pods.Ready(pod) && s.claim.Annotations[names.PodReady] != "true" {
			return volume.Pending
		}
		return volume.Running
	case corev1.PodPending, corev1.PodUnknown:
	}
	if s.clone.Stranded() {
		return volume.Stranded
	}
	return pendingFact(pod)
}

func pendingFact(pod *corev1.Pod) volume.Worker {
	if no, _ := pods.Unplaceable(pod); no {
		return volume.Unplaceable
	}
	if no, _ := pods.Unfetchable(pod); no {
		return volume.Unfetchable
	}
	return volume.Pending
}

// attempt returns how many tries there were before the worker's. It is read from the pod, so that counting a failed try twice
// after a crash gives the same number.
func (s *Seen) attempt() int32 { return number(s.worker.Annotations[render.AnnAttempt]) }

// restarts returns how many tries have failed, as recorded on the claim.
func (s *Seen) restarts() int32 {
	if s.claim == nil {
		return 0
	}
	return number(s.claim.Annotations[names.Restarts])
}

func number(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int32(n)
}

// The pause after a failed try doubles from the first to the longest. Five minutes is the kubelet's longest pause too, and is
// short enough that users need not delete and recreate a volume to get it going.
const (
	firstPause   = 5 * time.Second
	longestPause = 5 * time.Minute
)

func pause(attempt int32) time.Duration {
	p := firstPause
	for range attempt {
		if p *= 2; p >= longestPause {
			return longestPause
		}
	}
	return p
}

// nextTry returns when the pause after a failed worker ends.
func (s *Seen) nextTry() time.Time {
	if s.worker == nil {
		return s.now
	}
	return pods.Ended(s.worker).Add(pause(s.attempt()))
}

func (s *Seen) block() bool {
	mode := s.wanted.VolumeMode
	if s.claim != nil {
		mode = s.claim.Spec.VolumeMode
	}
	return mode != nil && *mode == corev1.PersistentVolumeBlock
}

func (s *Seen) content() task.Content {
	if s.order.Spec.ContentType == cdiv1.DataVolumeArchive {
		return task.Archive
	}
	return task.Disk
}

func (s *Seen) role() string {
	if s.source != nil && s.source.Upload != nil {
		return render.RoleUpload
	}
	return render.RoleImport
}
