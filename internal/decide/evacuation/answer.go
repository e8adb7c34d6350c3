package evacuation

import "github.com/berth-vm/berth/internal/state"

// Asked is everything the answer to a wish to evict a pod depends on.
type Asked struct {
	Strategy Strategy
	Guest    Guest
	// Here: it is the pod that the guest is in, or is to be started in; not one that it is to move to.
	Here bool
}

// Answer is what is answered.
type Answer struct {
	Rule string
	// Mark: it is written on the pod that the guest is to leave it.
	Mark bool
	// Refusal is why the pod stays for now; empty: it may go.
	Refusal state.EvacuationReason
}

type answer struct {
	name   string
	when   func(Asked) bool
	mark   bool
	refuse state.EvacuationReason
}

// Reply finds the first answer that holds.
func Reply(a Asked) Answer {
	for _, r := range answers {
		if r.when(a) {
			return Answer{Rule: r.name, Mark: r.mark, Refusal: r.refuse}
		}
	}
	return Answer{}
}

var answers = []answer{
	{"the pod of a guest that ended may go", func(a Asked) bool { return a.Guest == Ended }, false, ""},
	{"a guest that may be shut down is shut down", func(a Asked) bool {
		return a.Strategy == None || a.Strategy == MoveIfAble && a.Guest != Movable && a.Here
	}, false, ""},
	{"a guest that is on its way comes first", func(a Asked) bool { return !a.Here }, false, state.EvacuationComing},
	{"a guest that somebody else sees to is shown to them", func(a Asked) bool { return a.Strategy == External }, true, state.EvacuationExternal},
	{"a guest that is being started is waited for", func(a Asked) bool { return a.Guest == Unready }, false, state.EvacuationStarting},
	{"a guest that has to move and cannot holds the node", func(a Asked) bool { return a.Guest == Fixed }, false, state.EvacuationFixed},
	{"a guest that can move moves", func(Asked) bool { return true }, true, state.EvacuationAsked},
}
