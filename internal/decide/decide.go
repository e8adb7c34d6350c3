// Package decide is the frame of every decision below it: an ordered table of rules, of which the first that holds makes the plan.
// The tests of those packages go through every combination of facts with internal/testing/enumerate.
//
// It does not know what is decided, or of what.
package decide

// Rule is one line of a table: if When holds for the facts F, the actions Do are carried out in this order, and Say is reported.
type Rule[F, A, S any] = struct {
	Name string
	When func(F) bool
	Do   []A
	Say  S
}

// Plan is a decision: what to do, in this order, and what to say. Rule is the name of the rule that made it, for logs and tests.
type Plan[A comparable, S any] struct {
	Rule  string
	Do    []A
	State S
}

// Nothing is the action of tables that only report a state.
type Nothing struct{}

// First returns the plan of the first rule that holds, or an empty plan if none does.
func First[F any, A comparable, S any](rules []Rule[F, A, S], f F) Plan[A, S] {
	for _, r := range rules {
		if r.When(f) {
			return Plan[A, S]{Rule: r.Name, Do: r.Do, State: r.Say}
		}
	}
	return Plan[A, S]{}
}

// Does reports whether the plan has one of the actions.
func (p Plan[A, S]) Does(actions ...A) bool {
	for _, do := range p.Do {
		for _, a := range actions {
			if do == a {
				return true
			}
		}
	}
	return false
}

// Name returns the name of an enumeration's value, for tables and logs.
func Name[E ~int](e E, names ...string) string {
	if int(e) < 0 || int(e) >= len(names) {
		return "?"
	}
	return names[e]
}
