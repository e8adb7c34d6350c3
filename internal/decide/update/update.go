// Package update decides what happens to a running machine whose volumes were changed to other claims: whether its disks are sent
// into them by a migration, wait for a restart, or stay. It is a pure function from a few small facts to a plan; testdata has
// every situation that can arise.
//
// It does not know Kubernetes objects, clients or the time: internal/controller/volumeupdate turns what it sees into facts.
package update

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Change says how the machine's volumes differ from those that its guest has.
type Change int

// The changes.
const (
	None     Change = iota // they do not
	Refused                // at least one cannot be sent into its new claim
	Possible               // all can
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
	Resting              // the last of ours failed, and the next is not due
)

// Facts is everything the decision depends on.
type Facts struct {
	// Live: its owner wants its disks to be sent while it runs.
	Live   bool
	Change Change
	Guest  Guest
	Moves  Moves
	// Stale: a migration of ours that has not ended sends disks into claims that are not wanted any more.
	Stale bool
}

// Action is a step of a plan. Each is safe to repeat.
type Action string

// The actions.
const (
	Migrate Action = "Migrate" // make the next migration
	CallOff Action = "CallOff" // cancel ours
)

// Plan is a decision: the actions, and the state to report; none if the state is empty.
type Plan = decide.Plan[Action, state.UpdateReason]

// Decide finds the first rule that holds.
func Decide(f Facts) Plan { return decide.First(rules, f) }

var rules = []decide.Rule[Facts, Action, state.UpdateReason]{
	{"a guest that ended has no disks to send", func(f Facts) bool { return f.Guest == Ended }, nil, ""},
	{"disks are not sent into claims that nobody wants any more", func(f Facts) bool { return f.Stale }, []Action{CallOff}, ""},
	{"volumes that did not change stay", func(f Facts) bool { return f.Change == None }, nil, ""},
	{"without a migration the next start has the new claims", func(f Facts) bool { return !f.Live }, nil, state.UpdateAtRestart},
	{"a change that cannot be made is refused", func(f Facts) bool { return f.Change == Refused }, nil, state.UpdateRefused},
	{"a guest that moves is waited for", func(f Facts) bool { return f.Moves == Moving }, nil, state.UpdateMoving},
	{"a guest that is being started is waited for", func(f Facts) bool { return f.Guest == Unready }, nil, state.UpdateStarting},
	{"a guest that cannot move needs a person", func(f Facts) bool { return f.Guest == Fixed }, nil, state.UpdateFixed},
	{"a migration that failed is tried again later", func(f Facts) bool { return f.Moves == Resting }, nil, state.UpdateResting},
	{"the disks are sent into their new claims", func(Facts) bool { return true }, []Action{Migrate}, state.UpdateMoving},
}
