package snapshot

import "github.com/berth-vm/berth/internal/state"

// Source is the snapshot that is put back.
type Source int

// The situations of the snapshot.
const (
	Ready   Source = iota
	Pending        // it is not there, or not complete yet
	Void           // it failed, or parts of it are gone
)

// Claims is how far the machine's claims are, taken together: the worst of them counts.
type Claims int

// The situations of the claims.
const (
	Bound    Claims = iota // all are this restore's, with their data
	Made                   // all are this restore's
	Absent                 // some do not exist
	Leaving                // some of the old ones are being deleted
	Old                    // some are still the ones that are to be replaced
	Stranger               // one is not the machine's, or in the way of a machine's that is to be made: it is not ours to delete
)

// RestoreFacts is everything the decision about a restore depends on.
type RestoreFacts struct {
	Source  Source
	Machine Machine
	Policy  Policy
	// Late: the time a running machine is waited for has passed.
	Late   bool
	Claims Claims
	// Changed: the machine's spec is not that of the snapshot.
	Changed bool
	// Over: it was complete, or had failed, before.
	Over Over
}

// Policy is what to do about a machine that runs.
type Policy int

// The policies.
const (
	WaitAWhile Policy = iota
	Wait
	Stop
	Fail
)

// Over is how a restore ended.
type Over int

// The ends.
const (
	NotOver Over = iota
	Complete
	Failed
)

// The actions on a restore.
const (
	MakeMachine Action = "MakeMachine" // from the snapshot, stopped
	StopMachine Action = "StopMachine" // end its instance; the machine makes no other while it is restored
	DropClaims  Action = "DropClaims"  // delete the claims that are to be replaced
	MakeClaims  Action = "MakeClaims"  // from the VolumeSnapshots, under the names they have in the target
	ChangeBack  Action = "ChangeBack"  // give the machine the spec it had
)

type restoreRule struct {
	name string
	when func(RestoreFacts) bool
	do   []Action
	say  state.SnapshotReason
}

// Restore finds the first rule that holds.
func Restore(f RestoreFacts) Plan {
	for _, r := range restoreRules {
		if r.when(f) {
			return Plan{Rule: r.name, Do: r.do, State: r.say}
		}
	}
	return Plan{}
}

// begun: an old claim is gone, so there is only one way, forward.
func (f RestoreFacts) begun() bool { return f.Claims < Old }

// restoreRules is the whole life of a restore; first match wins. Nothing is deleted before the snapshot is known to be
// whole and the machine to be stopped.
var restoreRules = []restoreRule{
	{"a complete restore is never repeated", func(f RestoreFacts) bool { return f.Over == Complete }, nil, state.RestoreDone},
	{"a failed restore is never repeated", func(f RestoreFacts) bool { return f.Over == Failed }, nil, state.RestoreFailed},
	{"a snapshot that is not whole cannot be put back", func(f RestoreFacts) bool { return f.Source == Void }, nil, state.RestoreFailed},
	{"a snapshot that is being taken is waited for", func(f RestoreFacts) bool { return f.Source == Pending }, nil, state.RestoreWaiting},
	{"a machine that is another one is left alone", func(f RestoreFacts) bool { return f.Machine == Other }, nil, state.RestoreTaken},
	{"a claim of somebody else is left alone", func(f RestoreFacts) bool { return f.Claims == Stranger }, nil, state.RestoreFailed},
	{"a machine that does not exist is made", func(f RestoreFacts) bool { return f.Machine == NoMachine }, []Action{MakeMachine}, state.RestoreMachine},

	{"a running machine is stopped if that is wanted",
		func(f RestoreFacts) bool { return f.Machine == Running && (f.Policy == Stop || f.begun()) },
		[]Action{StopMachine}, state.RestoreStopping},
	{"a running machine fails a restore that must not wait",
		func(f RestoreFacts) bool {
			return f.Machine == Running && (f.Policy == Fail || f.Policy == WaitAWhile && f.Late)
		},
		nil, state.RestoreRefused},
	{"a running machine is waited for", func(f RestoreFacts) bool { return f.Machine == Running || f.Machine == Between }, nil, state.RestoreStopping},

	{"old claims are deleted", func(f RestoreFacts) bool { return f.Claims == Old }, []Action{DropClaims}, state.RestoreDropping},
	{"old claims are waited out", func(f RestoreFacts) bool { return f.Claims == Leaving }, nil, state.RestoreDropping},
	{"claims are made from the snapshot", func(f RestoreFacts) bool { return f.Claims == Absent }, []Action{MakeClaims}, state.RestoreMaking},
	{"the machine becomes what it was", func(f RestoreFacts) bool { return f.Changed }, []Action{ChangeBack}, state.RestoreMaking},
	{"claims get their data", func(f RestoreFacts) bool { return f.Claims == Made }, nil, state.RestoreMaking},
	{"a machine with its claims is restored", func(RestoreFacts) bool { return true }, nil, state.RestoreDone},
}

func (s Source) String() string { return name(s, "ready", "pending", "void") }
func (c Claims) String() string {
	return name(c, "bound", "made", "absent", "leaving", "old", "stranger")
}
func (p Policy) String() string { return name(p, "wait-a-while", "wait", "stop", "fail") }
func (o Over) String() string   { return name(o, "going-on", "complete", "failed") }
