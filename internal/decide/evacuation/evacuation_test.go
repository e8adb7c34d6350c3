package evacuation

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

func either(i int, yes string) string {
	if i == 1 {
		return yes
	}
	return "-"
}

var axes = []enumerate.Axis[Facts]{
	{Count: int(External) + 1, Set: func(f *Facts, i int) string { f.Strategy = Strategy(i); return f.Strategy.String() }},
	{Count: int(Movable) + 1, Set: func(f *Facts, i int) string { f.Guest = Guest(i); return f.Guest.String() }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Asked = i == 1; return either(i, "asked") }},
	{Count: int(Resting) + 1, Set: func(f *Facts, i int) string { f.Moves = Moves(i); return f.Moves.String() }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Guarded = i == 1; return either(i, "guarded") }},
}

var askedAxes = []enumerate.Axis[Asked]{
	{Count: int(External) + 1, Set: func(a *Asked, i int) string { a.Strategy = Strategy(i); return a.Strategy.String() }},
	{Count: int(Movable) + 1, Set: func(a *Asked, i int) string { a.Guest = Guest(i); return a.Guest.String() }},
	{Count: 2, Set: func(a *Asked, i int) string { a.Here = i == 1; return either(i, "here") }},
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# strategy guest asked moves budget -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string {
			p := Decide(f)
			return fmt.Sprintf("%s %v", p.State, p.Do)
		}))
	golden.Equal(t, "testdata/answers.txt", "# strategy guest here -> refusal marked\n"+
		enumerate.Table(askedAxes, func(a Asked) string {
			r := Reply(a)
			if r.Refusal == "" {
				return "may go"
			}
			return fmt.Sprintf("%s marked=%t", r.Refusal, r.Mark)
		}))
}

func TestInvariants(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		used[p.Rule] = true
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		if does(Migrate) && (!f.Asked || f.Guest != Movable || f.Moves != Still || !f.Guarded) {
			t.Errorf("a guest is moved that nobody wants to, that cannot, that moves already or that a drain could end meanwhile: %+v -> %+v", f, p)
		}
		if does(Migrate) && (f.Strategy == None || f.Strategy == External) {
			t.Errorf("a guest is moved that is not ours to move: %+v -> %+v", f, p)
		}
		if does(Unguard) && f.Guest != Ended && (f.Strategy == Move || f.Strategy == External) {
			t.Errorf("a guest that has to be kept loses its guard: %+v -> %+v", f, p)
		}
		if (does(Guard) && f.Guarded) || (does(Unguard) && !f.Guarded) {
			t.Errorf("what is so already is done again: %+v -> %+v", f, p)
		}
		if p.State != "" && state.OfEvacuation(p.State).Message == string(p.State) {
			t.Errorf("%s has no row", p.State)
		}
	})
	enumerate.Every(askedAxes, func(a Asked) {
		r := Reply(a)
		used[r.Rule] = true
		if r.Mark && r.Refusal == "" {
			t.Errorf("the pod may go and its guest is to move: %+v -> %+v", a, r)
		}
		if r.Mark && (a.Guest == Ended || !a.Here) {
			t.Errorf("a pod is marked that the guest is not in: %+v -> %+v", a, r)
		}
		// Whatever is refused here has a budget as well: the answer may not come.
		f := Facts{Strategy: a.Strategy, Guest: a.Guest}
		if r.Refusal != "" && a.Here && !f.kept() {
			t.Errorf("only the answer keeps the pod: %+v -> %+v", a, r)
		}
	})
	for _, r := range rules {
		if !used[r.name] {
			t.Errorf("no situation leads to rule %q", r.name)
		}
	}
	for _, r := range answers {
		if !used[r.name] {
			t.Errorf("no situation leads to answer %q", r.name)
		}
	}
	if used[""] {
		t.Error("some situation has no rule")
	}
}
