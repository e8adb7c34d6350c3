package machine

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Guest is the state of a guest whose launcher is up.
type Guest int

// The guests.
const (
	Serving  Guest = iota // it is ready, or nothing asks whether it is
	Unready               // its readiness probe fails
	Arriving              // it is in a launcher that it came to, and the kubelet has not asked that one yet
)

// ShowFacts are the facts that the shown reason of a machine depends on, in addition to the decision.
type ShowFacts struct {
	Decided state.MachineReason
	Guest   Guest
	// NodeAway: the launcher's node does not answer. Ending: the launcher is being deleted.
	NodeAway, Ending bool
	// Keeping: the instance is deleted, and a disk of it is being kept. Copying: a disk is copied before the guest starts.
	Keeping, Copying bool
	// Paused: a person has paused the guest. Stuck is why it stands still by itself; "" if it does not.
	Paused bool
	Stuck  state.MachineReason
	// Disk is the reason of a failed disk that has a reason of its own, Server the reason if the disk's server ended the guest; "" if
	// there is none.
	Disk, Server state.MachineReason
	// Unoffered: no node offers a medium that the disk of a copy needs. Lost: the node with its data is gone permanently.
	Unoffered, Lost bool
}

// Base says which parts of the decided row are kept when another reason is shown.
type Base int

// The bases.
const (
	Own           Base = iota // nothing: all is the reason's own
	DecidedStatus             // the printed status and the message's detail, since what comes next is not for the reason to say
	DecidedRow                // all but the reason, its message and whether it warns
)

// Shown is the reason that a machine shows, with its texts.
type Shown struct {
	Reason state.MachineReason
	Base   Base
}

// Show finds the first rule that holds.
func Show(f ShowFacts) Shown {
	p := decide.First(showRules, f)
	return p.State(f)
}

func shows(r state.MachineReason) func(ShowFacts) Shown {
	return func(ShowFacts) Shown { return Shown{Reason: r} }
}

// runs: a guest is here that can be paused or stand still.
func (f ShowFacts) runs() bool { return f.Decided == state.GuestRunning && f.Guest != Arriving }

func (f ShowFacts) endedBadly() bool {
	return f.Decided == state.GuestFailed || f.Decided == state.CrashLoop
}

var showRules = []decide.Rule[ShowFacts, decide.Nothing, func(ShowFacts) Shown]{
	{"a node that does not answer hides everything else", func(f ShowFacts) bool { return f.NodeAway && !f.Ending }, nil, shows(state.NodeAway)},
	{"a guest waits for its copies", func(f ShowFacts) bool { return f.Decided == state.LauncherStarting && f.Copying }, nil, shows(state.Cloning)},
	{"a deleted instance waits for the disk that is kept", func(f ShowFacts) bool { return f.Keeping && !f.NodeAway }, nil, shows(state.Keeping)},
	{"a guest was paused", func(f ShowFacts) bool { return f.runs() && f.Paused }, nil, shows(state.PausedByUser)},
	{"a guest stands still", func(f ShowFacts) bool { return f.runs() && f.Stuck != "" }, nil,
		func(f ShowFacts) Shown { return Shown{Reason: f.Stuck} }},
	{"a server ended the guest", func(f ShowFacts) bool { return f.endedBadly() && f.Server != "" }, nil,
		func(f ShowFacts) Shown { return Shown{Reason: f.Server, Base: DecidedStatus} }},
	{"the end of a launcher is not known", func(f ShowFacts) bool { return f.NodeAway && !f.endedBadly() }, nil,
		func(ShowFacts) Shown { return Shown{Reason: state.EndUnknown, Base: DecidedRow} }},
	{"a guest arrives", func(f ShowFacts) bool { return f.Decided == state.GuestRunning && f.Guest == Arriving }, nil, shows(state.GuestArriving)},
	{"a guest is not ready", func(f ShowFacts) bool { return f.Decided == state.GuestRunning && f.Guest == Unready }, nil, shows(state.GuestUnready)},
	{"a medium is missing, not a disk", func(f ShowFacts) bool { return f.Decided == state.DiskMissing && f.Unoffered }, nil, shows(state.UsageTypeMissing)},
	{"a disk failed for a reason of its own", func(f ShowFacts) bool { return f.Decided == state.DiskFailed && f.Disk != "" }, nil,
		func(f ShowFacts) Shown { return Shown{Reason: f.Disk} }},
	{"the data is on a node that is gone", func(f ShowFacts) bool { return f.Decided == state.LauncherUnplaceable && f.Lost }, nil, shows(state.NodeLost)},
	{"what was decided is shown", func(ShowFacts) bool { return true }, nil, func(f ShowFacts) Shown { return Shown{Reason: f.Decided} }},
}

func (g Guest) String() string { return decide.Name(g, "serving", "unready", "arriving") }

func (b Base) String() string { return decide.Name(b, "own", "decided-status", "decided-row") }
