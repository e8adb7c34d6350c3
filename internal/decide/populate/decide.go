// Package populate decides what to do next for a claim that names one of our sources as its data source. Such a claim
// stays unbound until a second claim, the prime, has been made and filled in its stead; then the prime's volume is given
// to it. On a class that binds claims without looking at their source, the claim itself is filled after it is bound, if it is empty for
// certain. Decide is a pure function from a handful of small facts to a plan: testdata/decisions.txt is the whole of it.
//
// How the prime is filled is decided by internal/decide/volume, as for every other claim. This package does not know
// Kubernetes objects, clients or the time.
package populate

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Target is the claim that was asked for.
type Target int

// The situations of a target. Kept is an unbound claim that is not to be populated: it names a volume, or it is recorded
// that it was populated before, as on a claim that comes back from a backup.
const (
	Open Target = iota
	Kept
	Bound
	Lost
	Leaving // it is being deleted
)

// Source is the state of the source that the target names.
type Source int

// What can be wrong with a source.
const (
	Found Source = iota
	Absent
	Forbidden // it is in another namespace, which does not allow it
	Broken    // it is there, and stands for nothing that can be cloned
)

// Place is where the target's volume will be.
type Place int

// Whether that is known. Unchosen is WaitForFirstConsumer: the scheduler has chosen no node yet, because no pod needs the
// claim. Classless is a target without a storage class, or with one that does not exist.
const (
	Chosen Place = iota
	Unchosen
	Classless
)

// Prime is the claim that is filled in the target's stead.
type Prime int

// The situations of a prime.
const (
	NoPrime   Prime = iota
	Filling         // it is being made or filled; how far that is, is the other table's
	Full            // its data is complete and no worker has it any more
	Taken           // an upload into it was acknowledged, or may be at any moment
	Misplaced       // it cannot become the target's: another node was chosen since, or its source was replaced
	Refused         // the node chosen for it cannot have it
	Given           // its volume is the target's
	Going           // it is being deleted
)

// Contents is the content of a target's volume that this controller did not bind.
type Contents int

// What can be known of the target's contents. Unknown may be data of a user, and is never written to.
const (
	Unknown Contents = iota
	Empty            // the volume was made for the target, or was free for any claim, and no pod of others has had it
	Begun            // the target itself is being filled
)

// Facts is everything a decision depends on.
type Facts struct {
	Target Target
	Prime  Prime
	Source Source
	Place  Place
	// Marked: the target's volume has the mark of having been filled for it.
	Marked bool
	// Recorded: the target has the record of having been populated.
	Recorded bool
	// Direct: the target's class binds it without looking at its source, as static volumes and provisioners without a CSI driver are bound.
	Direct   bool
	Contents Contents
}

// Action is a step of a plan. Each is safe to repeat: a crash between two of them loses nothing.
type Action string

// The actions.
const (
	Begin      Action = "Begin"      // note on the target what it is filled from, before anything is made for it
	Fill       Action = "Fill"       // take the next step towards a full prime
	Rebind     Action = "Rebind"     // give the prime's volume to the target, and mark it
	Record     Action = "Record"     // note on the target that it is populated
	DropPrime  Action = "DropPrime"  // and what else was made for it
	Unchoose   Action = "Unchoose"   // have the scheduler choose another node
	LetGo      Action = "LetGo"      // remove what lies in other namespaces
	KeepSilent Action = "KeepSilent" // there is nothing to say that was not said

	BeginInPlace Action = "BeginInPlace" // note on the target that it is empty and is filled itself
	FillInPlace  Action = "FillInPlace"  // take the next step towards a full target
	StopInPlace  Action = "StopInPlace"  // stop the worker that fills the target
)

// Plan is a decision: what to do, in this order, and what to say. If it includes Fill, the reported reason is that of the fill.
type Plan = decide.Plan[Action, state.Reason]

// Decide finds the first rule that holds.
func Decide(f Facts) Plan { return decide.First(rules, f) }

// rules is the whole behaviour; first match wins. Reading order: what ends the matter, then the volume that changes hands,
// what stands in the way of filling, the filling.
var rules = []decide.Rule[Facts, Action, state.Reason]{
	{"a target that is deleted takes everything with it",
		func(f Facts) bool { return f.Target == Leaving }, []Action{LetGo, KeepSilent}, state.ClaimLeaving},
	{"a lost target is the end",
		func(f Facts) bool { return f.Target == Lost }, []Action{KeepSilent}, state.ClaimVanished},

	{"a target that is filled in place is not filled without permission",
		func(f Facts) bool {
			return f.Target == Bound && f.Contents == Begun && f.Source == Forbidden && !f.Recorded && !f.Marked
		},
		[]Action{StopInPlace}, state.SourceUngranted},
	{"a target that is filled in place waits for a source that is gone",
		func(f Facts) bool {
			return f.Target == Bound && f.Contents == Begun && f.Source == Absent && !f.Recorded && !f.Marked
		},
		nil, state.SourceAbsent},
	{"a target that is filled in place waits for a source that stands for nothing any more",
		func(f Facts) bool {
			return f.Target == Bound && f.Contents == Begun && f.Source == Broken && !f.Recorded && !f.Marked
		},
		nil, state.SourceBroken},
	{"a target that is filled in place is filled further",
		func(f Facts) bool {
			return f.Target == Bound && f.Contents == Begun && !f.Recorded && f.Source == Found
		},
		[]Action{FillInPlace}, state.ClaimCreated},

	{"a bound target with our volume is recorded, then its prime goes",
		func(f Facts) bool { return f.Target == Bound && f.Marked && f.Prime != NoPrime && f.Prime != Going },
		[]Action{Record, DropPrime}, state.PopulationDone},
	{"a bound target with our volume is recorded",
		func(f Facts) bool { return f.Target == Bound && f.Marked }, []Action{Record}, state.PopulationDone},
	{"a bound target that was populated before is left alone",
		func(f Facts) bool { return f.Target == Bound && f.Recorded }, []Action{KeepSilent}, state.PopulationDone},
	{"what was sent is kept even if its target was bound behind our back",
		func(f Facts) bool { return f.Target == Bound && holds(f) }, nil, state.PopulationSkipped},
	{"an empty target that was bound needs no prime",
		func(f Facts) bool { return inPlace(f) && f.Prime != NoPrime && f.Prime != Going }, []Action{DropPrime}, state.PrimeLeaving},
	{"an empty target that was bound waits until its prime is gone",
		func(f Facts) bool { return inPlace(f) && f.Prime == Going }, nil, state.PrimeLeaving},
	{"an empty target that was bound needs permission to read its source",
		func(f Facts) bool { return inPlace(f) && f.Source == Forbidden }, nil, state.SourceUngranted},
	{"an empty target that was bound waits for its source",
		func(f Facts) bool { return inPlace(f) && f.Source == Absent }, nil, state.SourceAbsent},
	{"an empty target that was bound waits for a source that stands for something",
		func(f Facts) bool { return inPlace(f) && f.Source == Broken }, nil, state.SourceBroken},
	{"an empty target that was bound is filled in place",
		func(f Facts) bool { return inPlace(f) }, []Action{BeginInPlace, FillInPlace}, state.ClaimCreated},
	{"a target bound behind our back needs no prime",
		func(f Facts) bool { return f.Target == Bound && f.Prime != NoPrime && f.Prime != Going },
		[]Action{DropPrime}, state.PopulationSkipped},
	{"a target bound behind our back is left as it is",
		func(f Facts) bool { return f.Target == Bound }, nil, state.PopulationSkipped},

	{"a volume that was given away is waited for",
		func(f Facts) bool { return f.Prime == Given }, nil, state.Rebinding},
	{"what was sent is kept even if its target is not to be populated",
		func(f Facts) bool { return f.Target == Kept && holds(f) }, nil, state.PopulationKept},
	{"a target that is not to be populated needs no prime",
		func(f Facts) bool { return f.Target == Kept && f.Prime != NoPrime && f.Prime != Going },
		[]Action{DropPrime}, state.PopulationKept},
	{"a target that is not to be populated waits for its volume",
		func(f Facts) bool { return f.Target == Kept }, nil, state.PopulationKept},
	{"a prime that is going is waited for",
		func(f Facts) bool { return f.Prime == Going }, nil, state.PrimeLeaving},
	{"a full prime's volume is given to the target",
		func(f Facts) bool { return f.Prime == Full }, []Action{Fill, Rebind}, state.Rebinding},
	{"a prime that cannot become the target's is dropped",
		func(f Facts) bool { return f.Prime == Misplaced }, []Action{DropPrime}, state.PrimeLeaving},
	{"the scheduler chooses again when a node cannot have the prime",
		func(f Facts) bool { return f.Prime == Refused }, []Action{Unchoose, DropPrime}, state.NodeRefused},

	{"nothing is read without permission, nor any further",
		func(f Facts) bool { return f.Source == Forbidden && f.Prime == Filling }, []Action{DropPrime}, state.SourceUngranted},
	{"a source in another namespace needs its permission",
		func(f Facts) bool { return f.Source == Forbidden }, nil, state.SourceUngranted},
	{"a missing source is waited for",
		func(f Facts) bool { return f.Source == Absent }, nil, state.SourceAbsent},
	{"a source that stands for nothing is waited for",
		func(f Facts) bool { return f.Source == Broken }, nil, state.SourceBroken},
	{"a target without a class is waited for",
		func(f Facts) bool { return f.Place == Classless && f.Prime == NoPrime }, nil, state.ClasslessTarget},
	{"a target waits for the scheduler to choose its node",
		func(f Facts) bool { return f.Place == Unchosen && f.Prime == NoPrime }, nil, state.PopulationWaits},
	{"a target that is bound without its source is filled then",
		func(f Facts) bool { return f.Direct && f.Prime == NoPrime }, nil, state.ClaimUnbound},
	{"a prime is begun",
		func(f Facts) bool { return f.Prime == NoPrime }, []Action{Begin, Fill}, state.ClaimCreated},
	{"a prime is filled",
		func(f Facts) bool { return f.Prime == Filling || f.Prime == Taken }, []Action{Fill}, state.ClaimCreated},
}

// inPlace reports whether the target was bound without its data, and may be written to.
func inPlace(f Facts) bool { return f.Target == Bound && f.Contents == Empty }

// holds reports whether the prime has data that was reported as safe. It is deleted only when the target has the data.
func holds(f Facts) bool { return f.Prime == Full || f.Prime == Taken }
