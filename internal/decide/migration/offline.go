package migration

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// A stopped machine is moved without sending a guest: its claims are cloned to another node, and then get the new volumes under
// their names, like those of a guest that moved. One pod reserves the disks meanwhile: it finds a node that can run the machine,
// and it is among the holders of the old disks before they are read, so that no other pod writes to them.

// Copies is the state of the claims that replace the machine's own.
type Copies int

// The situations of the copies.
const (
	NoCopies Copies = iota // not all of them are there
	Filling                // they wait for a node, or are being filled
	Filled                 // every one is proved to be complete
	Partly                 // and of some it is written down that they have the data
	Recorded               // of all of them it is
)

// OfflineFacts are the facts about a stopped machine that the decision depends on.
type OfflineFacts struct {
	// Over: the migration has been said to have ended.
	Over bool
	// Cancelled: it is being deleted, or its machine is, or is gone.
	Cancelled bool
	// Runs: the machine has an instance.
	Runs bool
	// Fixed: there is nothing to move, or something that cannot be.
	Fixed bool
	// Busy: claims of it are about to get their names back, are not filled yet, or are in use by another pod.
	Busy bool
	// Pod stands for the machine: NoTarget, Waiting, Unplaceable, Placed, Ended or Going.
	Pod Target
	// Gated: it is not to be given a node yet.
	Gated bool
	// Held: it is among the holders of the old disks.
	Held bool
	// Late: no node has had the pod for longer than one waits for that.
	Late bool
	// Written: a pod that is none of Berth's may have written to the old disks while they were copied.
	Written bool
	Copies  Copies
}

// The actions on a machine that does not run.
const (
	StartMover Action = "StartMover" // the pod, which is not to be given a node yet
	Hold       Action = "Hold"       // enter it among the holders of the old disks
	MakeCopies Action = "MakeCopies" // claims that are cloned from the old ones
	Place      Action = "Place"      // let the pod have a node, and with it the copies
	Record     Action = "Record"     // that the copies have the data
	StopMover  Action = "StopMover"
)

// Offline finds the first rule that holds.
func Offline(f OfflineFacts) Plan { return decide.First(offlineRules, f) }

var offlineRules = []decide.Rule[OfflineFacts, Action, state.MigrationReason]{
	{"a pod goes when it is said how its migration ended", func(f OfflineFacts) bool { return f.Over && f.Pod.alive() }, []Action{StopMover}, ""},
	{"a migration of a stopped machine that is over is let go",
		func(f OfflineFacts) bool { return f.Over && f.Cancelled && f.Pod == NoTarget }, []Action{LetGo}, ""},
	{"a migration of a stopped machine that is over stays as it is", func(f OfflineFacts) bool { return f.Over }, nil, ""},
	{"copies that are known to have the data are the machine's disks", // whatever happens now
		func(f OfflineFacts) bool { return f.Copies == Recorded }, []Action{DropLeft}, state.MigrationCopied},
	{"what was begun to be written down is finished", // half of the disks here and half there would be no machine
		func(f OfflineFacts) bool { return f.Copies == Partly }, []Action{Record}, state.MigrationCopying},
	{"a cancelled copy has ended", func(f OfflineFacts) bool { return f.Cancelled }, []Action{DropLeft}, state.MigrationAborted},
	{"a machine that was started meanwhile stays", func(f OfflineFacts) bool { return f.Runs && !f.Held }, []Action{DropLeft}, state.MigrationStarted},
	{"disks that cannot be copied stay", func(f OfflineFacts) bool { return f.Fixed }, []Action{DropLeft}, state.MigrationImmovable},
	{"disks that are not free, or not whole, are waited for", func(f OfflineFacts) bool { return f.Busy && f.Pod == NoTarget }, nil, state.MigrationQueued},
	{"a pod stands for the machine", func(f OfflineFacts) bool { return f.Pod == NoTarget && f.Copies == NoCopies }, []Action{StartMover}, state.MigrationPlacing},
	{"copies whose pod is gone may be old", func(f OfflineFacts) bool { return f.Pod.gone() || !f.Held && f.Copies != NoCopies },
		[]Action{DropLeft}, state.MigrationTargetFailed},
	{"nobody else has the disks while they are copied", func(f OfflineFacts) bool { return !f.Held }, []Action{Hold}, state.MigrationPlacing},
	{"the copies are made when the disks are held", func(f OfflineFacts) bool { return f.Copies == NoCopies }, []Action{MakeCopies}, state.MigrationPlacing},
	{"the pod gets a node when its claims are there", func(f OfflineFacts) bool { return f.Gated }, []Action{Place}, state.MigrationPlacing},
	{"copies of disks that somebody wrote to meanwhile are old", func(f OfflineFacts) bool { return f.Written && f.Copies == Filled },
		[]Action{DropLeft}, state.MigrationWritten},
	{"copies that are complete are written down", func(f OfflineFacts) bool { return f.Copies == Filled }, []Action{Record}, state.MigrationCopying},
	{"a pod that no node has had for too long is given up", func(f OfflineFacts) bool { return f.Late && (f.Pod == Unplaceable || f.Pod == Waiting) },
		[]Action{DropLeft}, state.MigrationUnplaced},
	{"a pod that no node will have says why", func(f OfflineFacts) bool { return f.Pod == Unplaceable }, nil, state.MigrationUnplaceable},
	{"a pod is being placed, or its claims are being filled", func(OfflineFacts) bool { return true }, nil, state.MigrationCopying},
}

func (c Copies) String() string {
	return decide.Name(c, "NoCopies", "Filling", "Filled", "Partly", "Recorded")
}
