// Package containervolume decides what to do next about a volume that a container makes for a machine: run the container, ask it to make the
// volume, ask it to delete it, and forget it. It is a pure function from a few small facts to a plan; testdata has every situation
// that can arise.
//
// It does not know Kubernetes objects, clients or the time: internal/controller/containervolume turns what it sees into facts.
package containervolume

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Wish says whether the machine wants the volume, and how.
type Wish int

// The values of Wish.
const (
	Wanted  Wish = iota // the machine lists it
	Removed             // the machine does not list it any more
	Leaving             // the machine is being deleted, or gone
)

// Record is the recorded state of the volume.
type Record int

// The situations of the record.
const (
	NoRecord Record = iota
	Blank           // the container has never been asked
	Asked           // the container may have been asked: there may be a volume that is not recorded yet
	Made            // it said what the volume is
	Gone            // it said that there is no volume any more
)

// Pod is the pod of the container.
type Pod int

// The situations of the pod.
const (
	NoPod    Pod = iota
	Starting     // it cannot be asked yet
	Up           // it can be asked
	Ended        // it does not run any more and will not again
	Closing      // it is being deleted and can still be asked
	Ending       // it is being deleted
)

// Facts is everything the decision depends on.
type Facts struct {
	Wish   Wish
	Record Record
	Pod    Pod
	// Held: an instance of the machine has the volume.
	Held bool
	// Changed: the machine says another container than the one that is recorded.
	Changed bool
	// KeysDue: the container has no certificate, or one that ends soon.
	KeysDue bool
	// Abandoned: a user decided that what the container made may stay.
	Abandoned bool
}

// Action is a step of a plan. Each is safe to repeat: a crash between two of them loses nothing.
type Action string

// The actions.
const (
	KeepMachine  Action = "KeepMachine"  // a finalizer: the machine goes after its volume
	Write        Action = "Write"        // the record, or the machine's container in it
	MakeKeys     Action = "MakeKeys"     // a certificate for the container
	StartPod     Action = "StartPod"     //
	StopPod      Action = "StopPod"      //
	NoteAsking   Action = "NoteAsking"   // from now on there may be a volume
	AskToMake    Action = "AskToMake"    // and write the answer down
	ForgetAnswer Action = "ForgetAnswer" // it was another pod's
	StopInstance Action = "StopInstance" // nothing is deleted under a guest
	AskToDelete  Action = "AskToDelete"  // and write down that it is deleted
	Forget       Action = "Forget"       // the record and the keys: nothing is left
)

// Plan is a decision: what to do, in this order, and what to say.
type Plan = decide.Plan[Action, state.MachineReason]

// Decide finds the first rule that holds.
func Decide(f Facts) Plan { return decide.First(rules, f) }

func (p Pod) alive() bool   { return p == Starting || p == Up || p == Ended }
func (p Pod) leaving() bool { return p == Closing || p == Ending }
func (p Pod) answers() bool { return p == Up || p == Closing }

// over reports whether the container has nothing left to delete.
func (f Facts) over() bool {
	return f.Record == Gone || f.Wish != Wanted && (f.Record == Blank || f.Abandoned)
}

// rules is the whole life of the volume; first match wins. Reading order: nothing to do, its end, its deletion, its making.
var rules = []decide.Rule[Facts, Action, state.MachineReason]{
	{"nothing is known of a volume that nobody wants", func(f Facts) bool { return f.Record == NoRecord && f.Wish != Wanted }, nil, ""},
	{"a volume is recorded before anything is made for it",
		func(f Facts) bool { return f.Record == NoRecord }, []Action{KeepMachine, Write}, state.VolumeMaking},

	{"a leaving machine's guest stops before its volume goes",
		func(f Facts) bool { return f.Wish == Leaving && f.Held }, []Action{StopInstance}, state.VolumeDeleting},
	{"a volume that a guest has is not deleted",
		func(f Facts) bool { return f.Wish != Wanted && f.Held }, nil, state.VolumeInUse},
	{"the pod of a volume that is gone ends", func(f Facts) bool { return f.over() && (f.Pod.alive() || f.Pod == Closing) }, []Action{StopPod}, state.VolumeDeleting},
	{"the end of the pod is waited for", func(f Facts) bool { return f.over() && f.Pod.leaving() }, nil, state.VolumeDeleting},
	{"a volume that is gone is forgotten", func(f Facts) bool { return f.over() }, []Action{Forget}, state.VolumeDeleting},

	{"what may have been made is deleted by who made it",
		func(f Facts) bool { return f.Wish != Wanted && f.Pod.answers() }, []Action{AskToDelete}, state.VolumeDeleting},
	{"a pod that is being deleted is waited for", func(f Facts) bool { return f.Pod.leaving() }, nil, state.VolumeStarting},

	{"another container takes the place of the recorded one when no guest has the volume",
		func(f Facts) bool { return f.Wish == Wanted && f.Changed && !f.Held && f.Pod.alive() }, []Action{StopPod}, state.VolumeStarting},
	{"the record follows the machine while no pod runs",
		func(f Facts) bool { return f.Wish == Wanted && f.Changed && !f.Held }, []Action{Write}, state.VolumeStarting},
	{"a pod that has ended makes room for the next", func(f Facts) bool { return f.Pod == Ended }, []Action{StopPod}, state.VolumeStarting},
	{"a container has a certificate before it runs, and a new one before that ends",
		func(f Facts) bool { return f.KeysDue }, []Action{MakeKeys}, state.VolumeStarting},
	{"an answer is good as long as the pod that gave it",
		func(f Facts) bool { return f.Record == Made && f.Pod == NoPod }, []Action{ForgetAnswer, StartPod}, state.VolumeStarting},
	{"the container is run", func(f Facts) bool { return f.Pod == NoPod }, []Action{StartPod}, state.VolumeStarting},
	{"a container that cannot be asked yet is waited for", func(f Facts) bool { return f.Pod == Starting && f.Record != Made }, nil, state.VolumeStarting},
	{"that there may be a volume is written down before there is one",
		func(f Facts) bool { return f.Record == Blank }, []Action{NoteAsking, AskToMake}, state.VolumeMaking},
	{"the container is asked to make the volume", func(f Facts) bool { return f.Record == Asked }, []Action{AskToMake}, state.VolumeMaking},
	{"a volume that is made stays", func(Facts) bool { return true }, nil, state.VolumeMade},
}
