// Package snapshot decides what to do next for a snapshot of a machine (Take) and for putting one back (Restore). Both
// are pure functions from a few small facts to a plan; testdata has every situation that can arise.
//
// It does not know Kubernetes objects, clients or the time: internal/controller/snapshot turns what it sees into facts.
package snapshot

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Machine is the state of the machine that the snapshot is of.
type Machine int

// The situations of the machine.
const (
	NoMachine Machine = iota
	Stopped           // it has no instance
	Running           // its guest runs
	Between           // it is starting or stopping
	Other             // it is not the one the snapshot is of, nor was it made from it: of a restore alone
	Contended         // another restore of it began before: of a restore alone
)

// Quiet says whether the guest was asked to freeze its filesystems.
type Quiet int

// The situations of the guest. They are recorded, because a frozen guest does not say why it is frozen.
const (
	Untouched Quiet = iota
	Frozen          // its agent has frozen it
	Agentless       // it has no agent to ask
	Thawed          // it was frozen and goes on
)

// Cuts is the state of the VolumeSnapshots: the worst of them counts.
type Cuts int

// The situations of the VolumeSnapshots.
const (
	Usable  Cuts = iota
	Cut          // every volume's moment has passed; some are still being stored
	Cutting      // some are not taken yet
	Missing      // some do not exist
)

// Facts is everything the decision about a snapshot depends on.
type Facts struct {
	Machine Machine
	// Recorded: the content exists, which says what belongs to the snapshot.
	Recorded bool
	// Nothing: no volume of the machine can have a snapshot.
	Nothing bool
	Quiet   Quiet
	Cuts    Cuts
	// Late: the deadline has passed.
	Late bool
	// Over: it was complete before.
	Over bool
}

// Action is a step of a plan. Each is safe to repeat: a crash between two of them loses nothing.
type Action string

// The actions on a snapshot.
const (
	Record Action = "Record" // write down the machine and its claims
	Freeze Action = "Freeze" // freeze the guest's filesystems, and record the result
	Shoot  Action = "Shoot"  // make the VolumeSnapshots
	Thaw   Action = "Thaw"   // let the guest go on, and record it
	Finish Action = "Finish" // record that it is complete
)

// Plan is a decision: what to do, in this order, and what to say.
type Plan = decide.Plan[Action, state.SnapshotReason]

// Take finds the first rule that holds.
func Take(f Facts) Plan { return decide.First(takeRules, f) }

// held reports whether this controller froze the guest and can thaw it.
func (f Facts) held() bool { return f.Quiet == Frozen && f.Machine == Running }

// takeRules is the whole life of a snapshot; first match wins. Reading order: its end, what went wrong, the guest, the cut.
var takeRules = []decide.Rule[Facts, Action, state.SnapshotReason]{
	{"a complete snapshot stays complete", func(f Facts) bool { return f.Over && f.Cuts == Usable }, nil, state.SnapshotDone},
	{"a snapshot whose parts were deleted is none", func(f Facts) bool { return f.Over }, nil, state.SnapshotLost},

	{"a guest is not kept waiting for a snapshot that fails",
		func(f Facts) bool { return f.held() && f.Late && f.Cuts != Usable },
		[]Action{Thaw}, state.SnapshotFailed},

	{"a guest goes on as soon as every volume is cut",
		func(f Facts) bool { return f.held() && (f.Cuts == Cut || f.Cuts == Usable) },
		[]Action{Thaw}, state.SnapshotStoring},
	{"stored volumes complete the snapshot", func(f Facts) bool { return f.Recorded && f.Cuts == Usable }, []Action{Finish}, state.SnapshotDone},
	{"a snapshot that is late fails", func(f Facts) bool { return f.Late }, nil, state.SnapshotFailed},
	{"cut volumes are being stored", func(f Facts) bool { return f.Recorded && f.Cuts == Cut }, nil, state.SnapshotStoring},
	{"volumes are being cut", func(f Facts) bool { return f.Recorded && f.Cuts == Cutting }, nil, state.SnapshotCutting},

	{"a machine that does not exist is waited for", func(f Facts) bool { return f.Machine == NoMachine }, nil, state.SnapshotNoMachine},
	{"a machine between two states is waited for", func(f Facts) bool { return f.Machine == Between }, nil, state.SnapshotUnsteady},
	{"a machine without a volume to cut has no snapshot", func(f Facts) bool { return f.Nothing && !f.Recorded }, nil, state.SnapshotNothing},
	{"what belongs to the snapshot is written down first", func(f Facts) bool { return !f.Recorded }, []Action{Record}, state.SnapshotBegun},
	{"a running guest is asked to hold still",
		func(f Facts) bool { return f.Machine == Running && (f.Quiet == Untouched || f.Quiet == Thawed) },
		[]Action{Freeze, Shoot}, state.SnapshotCutting},
	{"volumes that stand still are cut", func(Facts) bool { return true }, []Action{Shoot}, state.SnapshotCutting},
}

func (m Machine) String() string {
	return decide.Name(m, "no-machine", "stopped", "running", "between", "other", "contended")
}
func (q Quiet) String() string { return decide.Name(q, "untouched", "frozen", "agentless", "thawed") }
func (c Cuts) String() string  { return decide.Name(c, "usable", "cut", "cutting", "missing") }
