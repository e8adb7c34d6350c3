package fill

import (
	"fmt"
	"strings"
	"time"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
)

// message makes the texts of a volume's status from what was seen.
type message struct{ *Seen }

// state returns a decided state with its message filled in.
func (s message) state(reason state.Reason, f volume.Facts) state.State {
	said := s.named(state.Of(reason))
	said.Detail = s.detail(f)
	switch {
	case f.Origin == volume.Larger && said.Reason == state.ClaimUnusable:
		said.Told = state.SourceRefused
	case s.mismatched(f):
		return said.Mismatch()
	case f.Worker == volume.Failed && s.pullFailed():
		return said.PullFailed()
	}
	return said
}

// pullFailed reports whether the worker could not get the container image that it was to import from its registry.
func (s message) pullFailed() bool {
	if s.source == nil || s.source.Registry == nil || s.report == nil {
		return false
	}
	switch s.report.Reason { //nolint:exhaustive // the others are not about the way to the image
	case task.SourceUnreachable, task.SourceNotFound, task.SourceUnavailable, task.SourceDenied, task.SourceUntrusted:
		return true
	}
	return false
}

// ofPopulator returns what is reported of a volume whose claim names a data source of its own, as CDI makes claims: the claim is
// filled by its populator, and the volume shows its progress. The claim's mark of completion is not enough: a claim without a
// volume has no data, whatever was written on it.
func (s message) ofPopulator(said state.State, f volume.Facts) state.State {
	if f.Claim != volume.Unbound || f.Data != volume.Unknown || s.order.itself(s.claim) || !clonesource.PopulatedByUs(s.claim) {
		return said
	}
	if shown := state.Of(state.Reason(s.claim.Annotations[names.State])); shown.Phase != cdiv1.Unknown && shown.Phase != cdiv1.Succeeded {
		return s.named(shown)
	}
	return said
}

// mismatched reports whether the transfer was given up because of its checksum, as the worker says or, once it is gone, the
// claim.
func (s message) mismatched(f volume.Facts) bool {
	if f.Data == volume.Condemned && s.claim != nil {
		return s.claim.Annotations[names.RunReason] == string(state.Mismatched)
	}
	return f.Worker == volume.Fatal && s.runReason() == state.Mismatched
}

// runReason returns the kind of error in the worker's report.
func (s *Seen) runReason() state.Run {
	if s.report != nil && s.report.Reason == task.ChecksumMismatch {
		return state.Mismatched
	}
	return state.Broken
}

func (s message) named(said state.State) state.State {
	said.Claim, said.Source = s.order.Name, render.Describe(s.source)
	if b := s.clone.Backup(); b != nil {
		said.Source = b.String()
	}
	return said
}

// detail returns the text for the message's {detail}: the fact that a person needs in this state.
func (s message) detail(f volume.Facts) string {
	switch {
	case f.Claim == volume.Incomplete && s.lacks != nil && f.Origin == volume.Usable:
		return s.lacks.Error()
	case f.Claim == volume.Unusable:
		return observedClaim(s).unusable()
	case f.Origin == volume.Larger:
		return s.small
	case f.Origin == volume.Busy && f.Worker != volume.NoWorker:
		return s.clone.Why() + "; what was copied meanwhile is copied again"
	case f.Access == volume.Taken:
		return s.holder
	case f.Data == volume.Condemned && s.claim != nil:
		return s.claim.Annotations[names.RunMessage]
	case f.Claim == volume.Leaving && s.claim.DeletionTimestamp == nil:
		return "it is the one of a DataVolume of this name that was deleted"
	case f.Claim == volume.Leaving:
		return "something still uses it"
	case (f.Claim == volume.Unbound || f.Claim == volume.Absent) && f.Origin == volume.Busy:
		return s.clone.Reason() // the pod that uses the source is not why there is no volume yet
	case f.Data == volume.Unknown && f.Worker == volume.NoWorker && s.claim != nil:
		return observedClaim(s).unwritable()
	}
	switch why := s.workerDetail(f); {
	case why != "":
		return why
	case s.clone.Why() != "":
		return s.clone.Why()
	case s.claim != nil:
		return s.claim.Annotations[names.CloneWhy]
	}
	return ""
}

func (s message) workerDetail(f volume.Facts) string {
	switch f.Worker {
	case volume.Failed:
		try := s.attempt() + 1
		return fmt.Sprintf("try %d failed: %s; next try at %s", try, s.lastError(), s.nextTry().UTC().Format(time.RFC3339))
	case volume.Fatal:
		return s.lastError()
	case volume.Unplaceable:
		return second(pods.Unplaceable(s.worker))
	case volume.Stranded:
		return "its source is on another node, so it is streamed instead"
	case volume.Unfetchable:
		return second(pods.Waiting(s.worker))
	case volume.CutOff:
		return fmt.Sprintf("node %s is not ready", s.worker.Spec.NodeName)
	case volume.Going:
		where := fmt.Sprintf("pod %s on node %s", s.worker.Name, s.worker.Spec.NodeName)
		if s.cutOff {
			where += ", which is not ready"
		}
		return where
	case volume.Pending:
		if s.trouble != "" {
			return s.trouble
		}
		return s.failedBefore()
	case volume.Running:
		if s.progress != nil && s.progress.Trouble != "" {
			return "the last upload failed: " + s.progress.Trouble
		}
		return joined(earlyUse(s).earlyText(), s.failedBefore())
	case volume.NoWorker, volume.Done, volume.Retained:
	}
	return ""
}

// failedBefore returns why the try before this one failed: a person who looks while the next is under way wants to know too.
func (s message) failedBefore() string {
	tries := s.restarts()
	if tries == 0 || s.claim.Annotations[names.RunMessage] == "" {
		return ""
	}
	return fmt.Sprintf("try %d, after try %d failed: %s", tries+1, tries, s.claim.Annotations[names.RunMessage])
}

// lastError returns why the worker's try failed, in one line.
func (s *Seen) lastError() string {
	switch {
	case s.report != nil && s.report.Detail != "":
		return s.report.Detail
	case s.report != nil:
		return string(s.report.Reason)
	case s.worker == nil:
		return ""
	}
	why := []string{"the worker ended without a report"}
	if t := pods.Terminated(s.worker); t != nil {
		why = append(why, fmt.Sprintf("%s, exit code %d", t.Reason, t.ExitCode))
	}
	if s.worker.Status.Reason != "" || s.worker.Status.Message != "" {
		why = append(why, strings.TrimSpace(s.worker.Status.Reason+" "+s.worker.Status.Message))
	}
	return strings.Join(why, ": ")
}

// percent returns what the progress column shows.
func (s message) percent(said state.State) cdiv1.DataVolumeProgress {
	switch {
	case said.Reason == state.PrePopulated:
		return "N/A" // nothing was transferred
	case said.Ready, said.Reason == state.ImportPaused:
		return "100.0%"
	case s.progress != nil:
		return cdiv1.DataVolumeProgress(fmt.Sprintf("%.2f%%", s.progress.Percent))
	}
	return "N/A"
}

// second returns the sentence that goes with an answer.
func second[T any](_ T, sentence string) string { return sentence }

func orKubeVirt(t cdiv1.DataVolumeContentType) cdiv1.DataVolumeContentType {
	if t == "" {
		return cdiv1.DataVolumeKubeVirt
	}
	return t
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
