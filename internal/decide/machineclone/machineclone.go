// Package machineclone decides the next step of a VirtualMachineClone: a snapshot is taken of its source, and a restore makes the
// target from it. It is pure: it knows neither the API server nor the time.
package machineclone

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Over says how a clone ended. It is recorded, because the helper objects are deleted then.
type Over int

// The ends.
const (
	NotOver Over = iota
	Succeeded
	Failed
)

// Source is the kind of source that is cloned.
type Source int

// The situations of the source.
const (
	Machine    Source = iota // a machine that is there
	OfSnapshot               // a snapshot that is there, which is not ours to delete
	NoSource                 // it does not exist
)

// Snapshot is the snapshot that the target is made from: the source itself, or one that the clone takes.
type Snapshot int

// The situations of the snapshot.
const (
	NoSnapshot    Snapshot = iota
	Taking                 // it is not complete yet
	Ready                  // it can be restored, with every volume of the machine
	Unusable               // it failed
	Partial                // volumes of the machine are not in it, or it records no machine
	SnapshotTaken          // something else has its name
)

// Restore is the state of the restore that makes the target.
type Restore int

// The situations of the restore.
const (
	NoRestore Restore = iota
	Restoring
	Restored
	RestoreBroken // it failed
	RestoreTaken  // something else has its name
)

// Target is the machine that is made.
type Target int

// The situations of the target.
const (
	NoTarget Target = iota
	Ours            // the clone's restore made it
	Other           // it has another owner
)

// Facts is everything the decision depends on.
type Facts struct {
	Over     Over
	Source   Source
	Snapshot Snapshot
	Restore  Restore
	Target   Target
	// Wrong: what is asked for cannot be.
	Wrong bool
}

// Action is a step of a plan. Each is safe to repeat.
type Action string

// The actions.
const (
	Take      Action = "Take"      // take a snapshot of the source
	Make      Action = "Make"      // make the restore that makes the target
	CleanUp   Action = "CleanUp"   // delete the restore, and the snapshot if the clone took it
	DropClone Action = "DropClone" // delete the clone: its target is gone
)

// Plan is a decision: what to do, in this order, and what to say.
type Plan = decide.Plan[Action, state.CloneReason]

// Decide finds the first rule that holds.
func Decide(f Facts) Plan { return decide.First(rules, f) }

// rules cover the whole life of a clone; first match wins. A machine that exists already is never the target: only the restore of
// this clone makes it, and nothing is restored in place.
var rules = []decide.Rule[Facts, Action, state.CloneReason]{
	{"a clone goes with its target", func(f Facts) bool { return f.Over == Succeeded && f.Target == NoTarget }, []Action{CleanUp, DropClone}, state.CloneDone},
	{"a clone that is there leaves nothing else behind", func(f Facts) bool { return f.Over == Succeeded }, []Action{CleanUp}, state.CloneDone},
	{"a clone that failed is not tried again", func(f Facts) bool { return f.Over == Failed }, []Action{CleanUp}, state.CloneFailed},
	{"a machine of the target's name is left alone", func(f Facts) bool { return f.Target == Other }, nil, state.CloneTargetExists},
	{"a target that is restored is there", func(f Facts) bool { return f.Restore == Restored && f.Target == Ours }, nil, state.CloneDone},
	{"a target that was deleted is not made again", func(f Facts) bool { return f.Restore == Restored }, nil, state.CloneTargetLost},
	{"a restore that failed makes no target", func(f Facts) bool { return f.Restore == RestoreBroken }, nil, state.CloneRestoreFailed},
	{"a restore of somebody else's is left alone", func(f Facts) bool { return f.Restore == RestoreTaken }, nil, state.CloneNameTaken},
	{"a target that is made gets its disks", func(f Facts) bool { return f.Restore == Restoring && f.Target == Ours }, nil, state.CloneCreating},
	{"a restore is waited for", func(f Facts) bool { return f.Restore == Restoring }, nil, state.CloneRestoring},
	{"a target that nothing restores is not finished", func(f Facts) bool { return f.Target == Ours }, nil, state.CloneTargetLost},

	{"a snapshot of somebody else's is left alone", func(f Facts) bool { return f.Snapshot == SnapshotTaken }, nil, state.CloneNameTaken},
	{"a snapshot that failed makes no target", func(f Facts) bool { return f.Snapshot == Unusable }, nil, state.CloneSnapshotFailed},
	{"a snapshot without all disks makes no target", func(f Facts) bool { return f.Snapshot == Partial }, nil, state.ClonePartial},
	{"what cannot be is said", func(f Facts) bool { return f.Snapshot == Ready && f.Wrong }, nil, state.CloneWrong},
	{"a snapshot makes the target", func(f Facts) bool { return f.Snapshot == Ready }, []Action{Make}, state.CloneRestoring},
	{"a snapshot is waited for", func(f Facts) bool { return f.Snapshot == Taking }, nil, state.CloneSnapshotting},
	{"a source is waited for", func(f Facts) bool { return f.Source == NoSource }, nil, state.CloneNoSource},
	{"a machine is cloned from a snapshot of it", func(f Facts) bool { return f.Source == Machine }, []Action{Take}, state.CloneSnapshotting},
	{"a snapshot that is gone is waited for", func(Facts) bool { return true }, nil, state.CloneNoSource},
}

func (o Over) String() string   { return decide.Name(o, "going-on", "succeeded", "failed") }
func (s Source) String() string { return decide.Name(s, "machine", "of-snapshot", "no-source") }
func (s Snapshot) String() string {
	return decide.Name(s, "no-snapshot", "taking", "ready", "unusable", "partial", "snapshot-taken")
}
func (r Restore) String() string {
	return decide.Name(r, "no-restore", "restoring", "restored", "restore-broken", "restore-taken")
}
func (t Target) String() string { return decide.Name(t, "no-target", "ours", "other") }
