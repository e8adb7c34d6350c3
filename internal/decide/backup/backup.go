// Package backup decides what to do next for a backup of a machine: a pure function from a few small facts to a plan; testdata has every situation
// that can arise.
//
// It does not know Kubernetes objects, clients or the time: internal/controller/backup turns what it sees into facts.
package backup

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Machine is the machine that is backed up.
type Machine int

// The situations of the machine.
const (
	Running   Machine = iota
	NoTracker         // the backup names a tracker that is not there
	NoMachine
	Bare     // it has no disk to back up
	Stopped  // it does not run, and the claims of its disks can be read
	Unsteady // it starts or stops
	Unread   // it does not run, and a claim of its disks has no data that can be read
	DiskUsed // it does not run, and another pod may write to a disk of it
)

// Target is the claim that the backup is written into.
type Target int

// The situations of the claim.
const (
	Usable  Target = iota
	NoClaim        // it is not there, or is being deleted
	Unfit          // it has no filesystem, or can only be read
	InUse          // another pod has it
)

// Worker is the pod that writes the backup.
type Worker int

// The situations of the worker. That there is one proves that the launcher has held the disks for this backup.
const (
	NoWorker Worker = iota
	Gated           // it is not recorded as a holder of the claim
	Starting
	Writing
	Written // it has written the backup
	Broken  // it has failed, and said why
	Lost    // it ended without a word
	Leaving // it is being deleted
	// Overtaken: it reads the claims of a machine that is started meanwhile.
	Overtaken
	Serving  // clients can fetch the disks from it
	Vanished // clients could, and it is not there any more
)

// Fetched is how much of a backup clients have fetched when it is to end.
type Fetched int

// The situations of what is fetched.
const (
	NotAll Fetched = iota
	All
	Unknown // its server has not answered yet
)

// Facts is everything the decision depends on.
type Facts struct {
	// Over: its status says how it ended.
	Over bool
	// Deleted: nobody wants it any more.
	Deleted bool
	// Protected: it has the finalizer.
	Protected bool
	// Pull: clients are to fetch it. It has no claim then.
	Pull bool
	// Expired: the time is up in which clients can fetch it.
	Expired bool
	Fetched Fetched
	Machine Machine
	Target  Target
	Worker  Worker
	// Gone: the guest is not in the launcher any more that the worker reads from.
	Gone bool
	// Late: the worker has not started for too long.
	Late bool
}

// Action is a step of a plan. Each is safe to repeat: a crash between two of them loses nothing.
type Action string

// The actions.
const (
	Protect    Action = "Protect"    // add the finalizer
	Hold       Action = "Hold"       // have the launcher hold the disks, and make the worker
	Read       Action = "Read"       // make a worker that reads the disks from their claims
	Admit      Action = "Admit"      // record the worker as a holder of the claim, and let it run
	Record     Action = "Record"     // write the checkpoint to the tracker
	Keep       Action = "Keep"       // tell the launcher that the backup is complete
	GiveUp     Action = "GiveUp"     // tell the launcher that it is not, and never will be
	StopWorker Action = "StopWorker" // delete the worker
	CleanUp    Action = "CleanUp"    // delete the worker and its keys
	LetGo      Action = "LetGo"      // remove the finalizer
)

// Plan is a decision: what to do, in this order, and what to say.
type Plan = decide.Plan[Action, state.BackupReason]

// Decide finds the first rule that holds.
func Decide(f Facts) Plan { return decide.First(rules, f) }

func (f Facts) at(ws ...Worker) bool {
	for _, w := range ws {
		if f.Worker == w {
			return true
		}
	}
	return false
}

// ends reports whether a backup that clients fetch is to end.
func (f Facts) ends() bool { return f.Pull && f.at(Serving) && f.Protected && (f.Deleted || f.Expired) }

// fetched reports whether clients have everything of it.
func (f Facts) fetched() bool { return f.Pull && f.at(Serving) && f.Protected && f.Fetched == All }

// rules cover the whole life of a backup; first match wins. Reading order: its end, the worker, what it waits for, its begin. A
// launcher is told of the end before the worker is deleted: the existing worker shows a later turn that the launcher has to be
// told.
var rules = []decide.Rule[Facts, Action, state.BackupReason]{
	{"a backup that has ended leaves nothing behind", func(f Facts) bool { return f.Over }, []Action{CleanUp, LetGo}, state.BackupOver},
	{"what is fetched of a backup that ends is known first", func(f Facts) bool { return f.ends() && f.Fetched == Unknown }, nil, state.BackupAborting},
	{"a deleted backup that was fetched is the last of its tracker", func(f Facts) bool { return f.Deleted && f.fetched() }, []Action{Record, Keep, CleanUp, LetGo}, state.BackupAborting},
	{"a deleted backup gives the disks back first", func(f Facts) bool { return f.Deleted && f.Protected }, []Action{GiveUp, CleanUp, LetGo}, state.BackupAborting},
	{"a deleted backup that has not begun is gone", func(f Facts) bool { return f.Deleted }, nil, state.BackupAborting},
	{"a backup that was fetched is complete when its time is up", func(f Facts) bool { return f.Expired && f.fetched() }, []Action{Record, Keep}, state.BackupDone},
	{"a backup whose time is up gives the disks back", func(f Facts) bool { return f.Pull && f.Expired }, []Action{GiveUp}, state.BackupExpired},

	{"a backup that is written is complete, even if the guest has ended since", func(f Facts) bool { return f.at(Written) }, []Action{Record, Keep}, state.BackupDone},
	{"a backup that is fetched is complete, even if the guest has ended since", func(f Facts) bool { return f.Gone && f.fetched() }, []Action{Record, Keep}, state.BackupDone},
	{"without the guest there is nothing to go on with", func(f Facts) bool { return f.Gone && !f.at(NoWorker) }, nil, state.BackupSourceLost},
	{"a worker that failed ends the backup", func(f Facts) bool { return f.at(Broken) }, []Action{GiveUp}, state.BackupFailed},
	{"what clients fetch of a machine that is started is not begun again", func(f Facts) bool { return f.at(Overtaken) && f.Pull }, nil, state.BackupOvertaken},
	{"a machine that is started does not wait for its backup, which begins again when the guest runs", func(f Facts) bool { return f.at(Overtaken) }, []Action{StopWorker}, state.BackupUnsteady},
	{"a server that ended is not made again: clients could not tell another moment from this one", func(f Facts) bool { return f.Pull && f.at(Lost, Leaving) || f.at(Vanished) }, []Action{GiveUp}, state.BackupServerLost},
	{"a worker that was killed is made again", func(f Facts) bool { return f.at(Lost) }, []Action{StopWorker}, state.BackupStarting},
	{"a worker that is going is waited for", func(f Facts) bool { return f.at(Leaving) }, nil, state.BackupStarting},
	{"clients can fetch the disks", func(f Facts) bool { return f.at(Serving) }, nil, state.BackupServing},
	{"a claim that is gone ends the backup", func(f Facts) bool { return f.at(Gated, Starting) && f.Target == NoClaim }, []Action{GiveUp}, state.BackupTargetLost},
	{"disks are not held for a worker that cannot start", func(f Facts) bool { return f.at(Gated, Starting) && f.Late }, []Action{GiveUp}, state.BackupLate},
	{"a server is recorded as a reader of the claims before it runs", func(f Facts) bool { return f.at(Gated) && f.Pull }, []Action{Admit}, state.BackupPreparing},
	{"a server starts", func(f Facts) bool { return f.at(Starting) && f.Pull }, nil, state.BackupPreparing},
	{"a worker is recorded as a holder of the claim before it runs", func(f Facts) bool { return f.at(Gated) }, []Action{Admit}, state.BackupStarting},
	{"a worker starts", func(f Facts) bool { return f.at(Starting) }, nil, state.BackupStarting},
	{"a worker writes", func(f Facts) bool { return f.at(Writing) }, nil, state.BackupWriting},

	{"a tracker that is not there is waited for", func(f Facts) bool { return f.Machine == NoTracker }, nil, state.BackupNoTracker},
	{"a machine that is not there is waited for", func(f Facts) bool { return f.Machine == NoMachine }, nil, state.BackupNoMachine},
	{"a machine without disks has no backup", func(f Facts) bool { return f.Machine == Bare }, nil, state.BackupNothing},
	{"a claim that is not there is waited for", func(f Facts) bool { return f.Target == NoClaim }, nil, state.BackupNoClaim},
	{"a claim that cannot hold a backup gets none", func(f Facts) bool { return f.Target == Unfit }, nil, state.BackupUnfit},
	{"a disk of a stopped machine that has no data yet is waited for", func(f Facts) bool { return f.Machine == Unread }, nil, state.BackupUnread},
	{"a disk of a stopped machine that others write to is waited for", func(f Facts) bool { return f.Machine == DiskUsed }, nil, state.BackupSourceInUse},
	{"a guest that starts or stops is waited for", func(f Facts) bool { return f.Machine == Unsteady }, nil, state.BackupUnsteady},
	{"a claim that another pod has is waited for", func(f Facts) bool { return f.Target == InUse }, nil, state.BackupTargetInUse},
	{"a backup is not forgotten while a launcher holds disks for it", func(f Facts) bool { return !f.Protected }, []Action{Protect}, state.BackupStarting},
	{"the disks of a machine that does not run are read from their claims", func(f Facts) bool { return f.Machine == Stopped }, []Action{Read}, state.BackupReading},
	{"the disks of a guest that runs are held, and written", func(Facts) bool { return true }, []Action{Hold}, state.BackupHolding},
}

func (m Machine) String() string {
	return decide.Name(m, "running", "no-tracker", "no-machine", "bare", "stopped", "unsteady", "unread", "disk-used")
}
func (t Target) String() string { return decide.Name(t, "usable", "no-claim", "unfit", "in-use") }
func (w Worker) String() string {
	return decide.Name(w, "no-worker", "gated", "starting", "writing", "written", "broken", "lost", "leaving", "overtaken", "serving", "vanished")
}
func (f Fetched) String() string { return decide.Name(f, "not-all", "all", "unknown") }
