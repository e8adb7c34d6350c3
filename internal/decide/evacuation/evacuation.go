// Package evacuation decides what happens to a running guest whose node is drained: the answer to a request to evict its pod, and
// what is done then. It is a pure function from a few small facts to a plan; testdata has every situation that can arise.
//
// Two things protect the pod of a guest that is to move: the answer, and a PodDisruptionBudget that exists before the first
// request, for the time when the webhook does not answer. A request is recorded on the pod; a guest that has moved is in another.
//
// It does not know Kubernetes objects, clients or the time: internal/controller/evacuation and internal/admission turn what they see
// into facts.
package evacuation

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Strategy is the eviction strategy of the guest, by its owner or the administrator.
type Strategy int

// The strategies.
const (
	None       Strategy = iota // it may be shut down
	Move                       // it has to move
	MoveIfAble                 // it moves, or may be shut down if it cannot
	External                   // an external controller does it
)

// Guest is the guest and whether it can move.
type Guest int

// The guests.
const (
	Ended   Guest = iota // there is none any more, or it is being stopped
	Unready              // it is not known to run: it is being started
	Fixed                // it runs and cannot be moved
	Movable              // it runs and can be moved
)

// Moves is the state of its migrations.
type Moves int

// What can be known.
const (
	Still   Moves = iota // it is not moving
	Moving               // a migration has not ended
	Resting              // the last failed, and the next is not due
)

// Facts is everything the decision about an instance depends on.
type Facts struct {
	Strategy Strategy
	Guest    Guest
	// Asked: an eviction of the guest's pod was requested.
	Asked bool
	Moves Moves
	// Guarded: its PodDisruptionBudget is there.
	Guarded bool
}

// Action is a step of a plan. Each is safe to repeat.
type Action string

// The actions.
const (
	Guard   Action = "Guard"   // make the PodDisruptionBudget
	Unguard Action = "Unguard" // take it away
	Migrate Action = "Migrate" // make the next migration
)

// Plan is a decision: the actions, and the state to report on the instance; none if the state is empty.
type Plan = decide.Plan[Action, state.EvacuationReason]

// kept reports whether only Berth may end the guest. The strategy that moves a guest if possible cannot be evaluated while it
// moves.
func (f Facts) kept() bool {
	able := f.Guest == Movable || f.Guest == Unready && f.Guarded
	return f.Strategy == Move || f.Strategy == External || f.Strategy == MoveIfAble && able
}

// Decide finds the first rule that holds.
func Decide(f Facts) Plan { return decide.First(rules, f) }

var rules = []decide.Rule[Facts, Action, state.EvacuationReason]{
	{"the pod of a guest that ended may go", func(f Facts) bool { return f.Guest == Ended && f.Guarded }, []Action{Unguard}, ""},
	{"a guest that ended needs nothing", func(f Facts) bool { return f.Guest == Ended }, nil, ""},
	{"a guest that is to be kept is guarded", func(f Facts) bool { return f.kept() && !f.Guarded }, []Action{Guard}, ""},
	{"a guest that may be shut down is not guarded", func(f Facts) bool { return !f.kept() && f.Guarded }, []Action{Unguard}, ""},
	{"a guest nobody wants to leave stays", func(f Facts) bool { return !f.Asked || !f.kept() }, nil, ""},
	{"a guest that somebody else sees to is shown", func(f Facts) bool { return f.Strategy == External }, nil, state.EvacuationExternal},
	{"a guest that moves is waited for", func(f Facts) bool { return f.Moves == Moving }, nil, state.EvacuationMoving},
	{"a guest that is being started is waited for", func(f Facts) bool { return f.Guest == Unready }, nil, state.EvacuationStarting},
	{"a guest that cannot move needs a person", func(f Facts) bool { return f.Guest == Fixed }, nil, state.EvacuationFixed},
	{"a guest that failed to move is tried again later", func(f Facts) bool { return f.Moves == Resting }, nil, state.EvacuationResting},
	{"a guest that is to leave moves", func(Facts) bool { return true }, []Action{Migrate}, state.EvacuationMoving},
}
