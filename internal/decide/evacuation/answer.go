package evacuation

import (
	"github.com/berth-vm/berth/internal/decide"
	"github.com/berth-vm/berth/internal/state"
)

// Asked holds the facts that the answer to a request to evict a pod depends on.
type Asked struct {
	Strategy Strategy
	Guest    Guest
	// Here: the guest is in this pod, or will be started in it; it is not the target of a move.
	Here bool
}

// Answer is the answer to a request for eviction.
type Answer struct {
	Rule string
	// Mark: it is written on the pod that the guest is to leave it.
	Mark bool
	// Refusal is why the pod stays for now; empty: it may go.
	Refusal state.EvacuationReason
}

// Reply finds the first answer that holds.
func Reply(a Asked) Answer {
	p := decide.First(answers, a)
	answer := p.State
	answer.Rule = p.Rule
	return answer
}

var answers = []decide.Rule[Asked, decide.Nothing, Answer]{
	{"the pod of a guest that ended may go", func(a Asked) bool { return a.Guest == Ended }, nil, Answer{}},
	{"a guest that may be shut down is shut down", func(a Asked) bool {
		return a.Strategy == None || a.Strategy == MoveIfAble && a.Guest != Movable && a.Here
	}, nil, Answer{}},
	{"a guest that is on its way comes first", func(a Asked) bool { return !a.Here }, nil, Answer{Refusal: state.EvacuationComing}},
	{"a guest that somebody else sees to is shown to them", func(a Asked) bool { return a.Strategy == External }, nil, Answer{Refusal: state.EvacuationExternal, Mark: true}},
	{"a guest that is being started is waited for", func(a Asked) bool { return a.Guest == Unready }, nil, Answer{Refusal: state.EvacuationStarting}},
	{"a guest that has to move and cannot holds the node", func(a Asked) bool { return a.Guest == Fixed }, nil, Answer{Refusal: state.EvacuationFixed}},
	{"a guest that can move moves", func(Asked) bool { return true }, nil, Answer{Refusal: state.EvacuationAsked, Mark: true}},
}
