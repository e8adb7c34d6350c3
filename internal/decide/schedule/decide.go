// Package schedule decides what a schedule does next for one machine: whether something is made, and what of it is removed. Both are pure functions from
// a few small facts to a plan; testdata has every situation that can arise.
//
// It does not know Kubernetes objects, clients or the time: internal/controller/schedule turns what it sees into facts.
package schedule

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Last is the newest thing that the schedule made of the machine.
type Last int

// The values of Last.
const (
	Nothing   Last = iota // nothing was made yet, or it was deleted
	GoingOn               // it has not ended
	Failed                // it failed
	Succeeded             // it is good
)

// Tracker is what records the changes since the last backup.
type Tracker int

// The situations of it.
const (
	Unneeded Tracker = iota // a snapshot is taken
	Missing
	There
	Foreign // something else has its name
)

// Facts is what a run depends on.
type Facts struct {
	Wrong     bool // the schedule cannot be read
	Suspended bool
	Gone      bool // there is no such machine, or it is being deleted
	Due       bool // a moment has come, and nothing was made for it
	Taken     bool // another object has the name that the next backup or snapshot needs
	Overdue   bool // the last good one is too old
	Last      Last
	Tracker   Tracker
}

// Action is something to do. Each is safe to repeat: a crash between two of them loses nothing.
type Action string

// The actions.
const (
	Track Action = "Track" // make the tracker
	Make  Action = "Make"  // make the backup or the snapshot of the moment
)

// Plan is a decision: what to do, in this order, and what to say.
type Plan = decide.Plan[Action, state.ScheduleReason]

// Decide finds the first rule that holds.
func Decide(f Facts) Plan { return decide.First(rules, f) }

// rules says when something is made. At most one thing goes on for a machine at a time.
var rules = []decide.Rule[Facts, Action, state.ScheduleReason]{
	{"a schedule that cannot be read makes nothing", func(f Facts) bool { return f.Wrong }, nil, state.ScheduleInvalid},
	{"a machine that is not there is waited for", func(f Facts) bool { return f.Gone }, nil, state.ScheduleNoMachine},
	{"nothing begins before the last one has ended", func(f Facts) bool { return f.Due && f.Last == GoingOn && !f.Suspended }, nil, state.SchedulePrevious},
	{"what goes on for too long is told", func(f Facts) bool { return f.Last == GoingOn && f.Overdue }, nil, state.ScheduleOverdue},
	{"what goes on is waited for", func(f Facts) bool { return f.Last == GoingOn }, nil, state.ScheduleGoingOn},
	{"a suspended schedule makes nothing", func(f Facts) bool { return f.Suspended }, nil, state.ScheduleSuspended},
	{"what is not ours is left alone", func(f Facts) bool { return f.Due && (f.Taken || f.Tracker == Foreign) }, nil, state.ScheduleTaken},
	{"changes are recorded before a backup is made", func(f Facts) bool { return f.Due && f.Tracker == Missing }, []Action{Track, Make}, state.ScheduleGoingOn},
	{"its moment has come", func(f Facts) bool { return f.Due }, []Action{Make}, state.ScheduleGoingOn},
	{"the last one failed", func(f Facts) bool { return f.Last == Failed }, nil, state.ScheduleFailed},
	{"the last good one is too old", func(f Facts) bool { return f.Overdue }, nil, state.ScheduleOverdue},
	{"nothing was made yet", func(f Facts) bool { return f.Last == Nothing }, nil, state.ScheduleWaiting},
	{"the last one is good", func(Facts) bool { return true }, nil, state.ScheduleGood},
}

// Worker is the pod that removes the files of backups.
type Worker int

// The situations of it.
const (
	NoWorker Worker = iota
	Gated           // it is not recorded as a holder of the claim
	Working
	Done
	Broken  // it failed, and said why
	Lost    // it ended without a word
	Leaving // it is being deleted
)

// Old is what the removal of old ones depends on.
type Old struct {
	Wrong   bool // it is unknown what is to be kept
	GoingOn bool // something is being made of the machine
	Surplus bool // something is not to be kept
	Files   bool // it has files in a claim, which is there
	Worker  Worker
	Again   bool // a worker that failed may be made again: some time has passed
}

// Removal is something to do about old ones.
type Removal string

// What there is to do.
const (
	Remove     Removal = "Remove"     // make the worker that removes the files
	Admit      Removal = "Admit"      // record the worker as a holder of the claim, and let it run
	Forget     Removal = "Forget"     // delete the backups whose files the worker removed
	Delete     Removal = "Delete"     // delete what has no files
	StopWorker Removal = "StopWorker" // delete the worker
)

// RemovalPlan is a decision about old ones.
type RemovalPlan = decide.Plan[Removal, state.ScheduleReason]

// DecideRemoval finds the first rule that holds.
func DecideRemoval(o Old) RemovalPlan { return decide.First(removals, o) }

// removals says how old ones go: their files first, then the objects that say that they are there.
var removals = []decide.Rule[Old, Removal, state.ScheduleReason]{
	{"a worker that is going is waited for", func(o Old) bool { return o.Worker == Leaving }, nil, state.ScheduleRemoving},
	{"what has no files any more is forgotten", func(o Old) bool { return o.Worker == Done }, []Removal{Forget, StopWorker}, state.ScheduleRemoving},
	{"a worker that was killed is made again", func(o Old) bool { return o.Worker == Lost }, []Removal{StopWorker}, state.ScheduleRemoving},
	{"a worker that failed is made again after a while", func(o Old) bool { return o.Worker == Broken && o.Again }, []Removal{StopWorker}, state.ScheduleRemoving},
	{"a worker that failed says why", func(o Old) bool { return o.Worker == Broken }, nil, state.ScheduleNotRemoved},
	{"a worker is recorded as a holder of the claim before it runs", func(o Old) bool { return o.Worker == Gated }, []Removal{Admit}, state.ScheduleRemoving},
	{"a worker removes files", func(o Old) bool { return o.Worker == Working }, nil, state.ScheduleRemoving},
	{"a schedule that cannot be read removes nothing", func(o Old) bool { return o.Wrong }, nil, state.ScheduleKept},
	{"nothing is removed while something is made", func(o Old) bool { return o.GoingOn }, nil, state.ScheduleKept},
	{"what has files goes after them", func(o Old) bool { return o.Surplus && o.Files }, []Removal{Remove}, state.ScheduleRemoving},
	{"what has no files goes at once", func(o Old) bool { return o.Surplus }, []Removal{Delete}, state.ScheduleKept},
	{"all that there is is kept", func(Old) bool { return true }, nil, state.ScheduleKept},
}

func (l Last) String() string { return decide.Name(l, "nothing", "going-on", "failed", "succeeded") }
func (t Tracker) String() string {
	return decide.Name(t, "no-tracker-needed", "tracker-missing", "tracker", "tracker-foreign")
}
func (w Worker) String() string {
	return decide.Name(w, "no-worker", "gated", "working", "done", "broken", "lost", "leaving")
}
