// Package state is the one table of what can be said about a volume. Phase, conditions and event of a DataVolume all
// come from the same row, so they cannot disagree; docs/reference/states.md is written from it.
//
// It does not know how a state is reached (that is internal/decide) nor how it is written (internal/cluster).
package state

import (
	"strings"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Reason names a row. It is the reason of the event and, where clients do not expect another word, of the conditions.
type Reason string

// Run is the reason of the Running condition. Clients compare these words: KubeVirt takes Error and ImagePullFailed with status
// False for a broken disk.
type Run string

// What the Running condition can say.
const (
	Idle          Run = ""                // no worker, and none is missing
	Moving        Run = "Pod is running"  // the only one with status True
	Completed     Run = "Completed"       // the data is there
	Broken        Run = "Error"           // the last try failed
	Mismatched    Run = "ChecksumError"   // it failed because the source's bytes are not those of the checksum
	Unschedulable Run = "Unschedulable"   // the worker finds no node
	Unpullable    Run = "ImagePullFailed" // the node cannot fetch the worker's image, or the worker the image to import
)

// Bound is the reason of the Bound condition if it is not the claim's own phase.
type Bound string

// What the Bound condition can say. AsClaim stands for "Bound" or "Pending", whichever the claim is.
const (
	AsClaim       Bound = ""
	NotFound      Bound = "NotFound"
	ClaimLost     Bound = "ClaimLost"
	ExceededQuota Bound = "ErrExceededQuota"
	ClaimNotValid Bound = "ErrClaimNotValid"
	NoSource      Bound = "CloneWithoutSource" // there is no claim, because there is nothing to clone
)

// Row is a state of a volume.
type Row struct {
	Reason Reason
	Phase  cdiv1.DataVolumePhase
	Ready  bool // the data is complete and may be used
	Warn   bool // a person should look: the event is a warning
	Run    Run
	// RunText is the message of the Running condition where clients know another one than Message.
	RunText string
	// Told is the reason of a second event, with the same message, where clients wait for that word.
	Told  Reason
	Bound Bound
	// Message tells a person what is happening and, if they must act, what to do. {claim}, {source} and {detail} are filled in from State.
	Message string
}

// State is a row as it holds for one volume at one moment.
type State struct {
	Row
	Claim  string // the claim's name
	Source string // what it is filled from, as messages call it
	Detail string // the last error, the pod in the way, the node: whatever the row's {detail} stands for
}

// Of returns the state a reason stands for. A reason without a row would be a programming error that the tests of internal/decide
// rule out; it is shown as Unknown rather than hidden.
func Of(r Reason) State {
	for _, rows := range [][]Row{table, populations} {
		for _, row := range rows {
			if row.Reason == r {
				return State{Row: row}
			}
		}
	}
	return State{Row: Row{Reason: r, Phase: cdiv1.Unknown, Warn: true, Message: "{detail}"}}
}

// Rows returns the table of DataVolumes, in the order of the documentation.
func Rows() []Row { return append([]Row(nil), table...) }

// Text returns the message with its blanks filled in.
func (s State) Text() string {
	if s.Detail == "" {
		s.Message = strings.NewReplacer("; {detail}", "", ": {detail}", "").Replace(s.Message)
	}
	return strings.NewReplacer("{claim}", s.Claim, "{source}", s.Source, "{detail}", s.Detail).Replace(s.Message)
}

// Mismatch returns the state of an attempt that failed because of a checksum: the same row, with the reason that clients know for
// that in the Running condition.
func (s State) Mismatch() State {
	if s.Run == Broken {
		s.Run = Mismatched
	}
	return s
}

// PullFailed returns the state of an attempt that failed because a container image could not be fetched: the same row, with the
// reason that clients know for that in the Running condition.
func (s State) PullFailed() State {
	if s.Run == Broken {
		s.Run = Unpullable
	}
	return s
}

// OverQuota returns the state of a volume that an object was refused for because of a quota: clients wait for an event of that
// word, whatever was refused.
func (s State) OverQuota() State {
	if s.Reason != QuotaExceeded {
		s.Told = QuotaExceeded
	}
	return s
}

// ReadyReason returns the reason of the Ready condition: the row's, except where clients expect another one while data moves, and
// none when it is ready.
func (s State) ReadyReason() string {
	switch {
	case s.Ready:
		return ""
	case s.Run == Moving:
		return "TransferRunning"
	}
	return string(s.Reason)
}

// RunMessage returns the message of the Running condition.
func (s State) RunMessage() string {
	if s.RunText != "" {
		return s.RunText
	}
	return s.Text()
}

// RunReason returns the reason of the Running condition.
func (s State) RunReason() string {
	if s.Run == Idle {
		return string(s.Reason)
	}
	return string(s.Run)
}
