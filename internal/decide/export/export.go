// Package export decides what to do next for an export of disks: a pure function from a few small facts to a plan; testdata has every
// situation that can arise.
//
// It does not know Kubernetes objects, clients or the time: internal/controller/export turns what it sees into facts.
package export

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Source is the state of the exported disks.
type Source int

// The situations of the source.
const (
	Usable  Source = iota // no pod writes to it
	Missing               // it is not there, or is being deleted
	Empty                 // it has no volume in a claim
	InUse                 // a pod may write to it
	Unready               // it is not complete
	Unmade                // it is a snapshot, and some claim is not made from it
)

// Server is the pod that people download from.
type Server int

// The situations of the server.
const (
	None Server = iota
	Starting
	Failing // it ended, and is started again
	Serving
	Over    // it ended permanently, or is about to
	Leaving // it is being deleted
)

// Facts is everything the decision depends on.
type Facts struct {
	Source Source
	Server Server
	// Expired: the export's time is over.
	Expired bool
	// Recorded: the server is recorded as a holder of the disks that it reads.
	Recorded bool
	// Reachable: the Service that leads to the server is there.
	Reachable bool
}

// Action is a step of a plan. Each is safe to repeat: a crash between two of them loses nothing.
type Action string

// The actions.
const (
	Remove      Action = "Remove"      // delete the export, and with it all that is its
	MakeClaims  Action = "MakeClaims"  // make claims from the snapshot
	StartServer Action = "StartServer" // make the token if none was given, the keys, the Service and the pod
	MakeService Action = "MakeService" // make the Service again after it was deleted
	TakeDisks   Action = "TakeDisks"   // record the server as a holder of its disks, and let it run
	StopServer  Action = "StopServer"
)

// Plan is a decision: what to do, in this order, and what to say.
type Plan = decide.Plan[Action, state.ExportReason]

// Decide finds the first rule that holds.
func Decide(f Facts) Plan {
	p := decide.First(rules, f)
	p.Do = f.only(p.Do)
	return p
}

// only leaves out the stop of a server that there is none of.
func (f Facts) only(do []Action) []Action {
	if len(do) == 1 && do[0] == StopServer && (f.Server == None || f.Server == Leaving) {
		return nil
	}
	return do
}

// rules is the whole life of an export; first match wins. Reading order: its end, the source, the server.
var rules = []decide.Rule[Facts, Action, state.ExportReason]{
	{"an export whose time is over is deleted", func(f Facts) bool { return f.Expired }, []Action{Remove}, state.ExportExpired},

	{"a source that is not there is waited for", func(f Facts) bool { return f.Source == Missing }, []Action{StopServer}, state.ExportMissing},
	{"a source without volumes is not exported", func(f Facts) bool { return f.Source == Empty }, []Action{StopServer}, state.ExportNothing},
	{"nothing is read that somebody may write", func(f Facts) bool { return f.Source == InUse }, []Action{StopServer}, state.ExportInUse},
	{"nothing is read that is not complete", func(f Facts) bool { return f.Source == Unready }, []Action{StopServer}, state.ExportUnready},
	{"a snapshot is read from claims that are made from it", func(f Facts) bool { return f.Source == Unmade }, []Action{MakeClaims}, state.ExportRestoring},

	{"a server that is going is waited for", func(f Facts) bool { return f.Server == Leaving }, nil, state.ExportStarting},
	{"a server that ended is made again", func(f Facts) bool { return f.Server == Over }, []Action{StopServer}, state.ExportStarting},
	{"disks that stand still are served", func(f Facts) bool { return f.Server == None }, []Action{StartServer}, state.ExportStarting},
	{"a Service that was deleted is made again", func(f Facts) bool { return f.Server == Serving && !f.Reachable }, []Action{MakeService}, state.ExportReady},
	{"a server is recorded as a holder of its disks before it runs",
		func(f Facts) bool { return f.Server == Starting && !f.Recorded }, []Action{TakeDisks}, state.ExportStarting},
	{"a server that serves is recorded with its node", // or was made before there were records
		func(f Facts) bool { return f.Server == Serving && !f.Recorded }, []Action{TakeDisks}, state.ExportReady},
	{"a server starts", func(f Facts) bool { return f.Server == Starting }, nil, state.ExportStarting},
	{"a server that does not stay says why", func(f Facts) bool { return f.Server == Failing }, nil, state.ExportFailing},
	{"a server serves", func(Facts) bool { return true }, nil, state.ExportReady},
}

func (s Source) String() string {
	return decide.Name(s, "usable", "missing", "empty", "in-use", "unready", "unmade")
}

func (s Server) String() string {
	return decide.Name(s, "none", "starting", "failing", "serving", "over", "leaving")
}
