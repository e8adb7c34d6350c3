package populate

import (
	"fmt"
	"slices"
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	{Count: int(Leaving) + 1, Set: func(f *Facts, i int) string { f.Target = Target(i); return f.Target.String() }},
	{Count: int(Going) + 1, Set: func(f *Facts, i int) string { f.Prime = Prime(i); return f.Prime.String() }},
	{Count: int(Broken) + 1, Set: func(f *Facts, i int) string { f.Source = Source(i); return f.Source.String() }},
	{Count: int(Classless) + 1, Set: func(f *Facts, i int) string { f.Place = Place(i); return f.Place.String() }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Marked = i == 1; return fmt.Sprint(f.Marked) }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Recorded = i == 1; return fmt.Sprint(f.Recorded) }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Direct = i == 1; return fmt.Sprint(f.Direct) }},
	{Count: int(Begun) + 1, Set: func(f *Facts, i int) string { f.Contents = Contents(i); return f.Contents.String() }},
}

// TestDecisionTable compares the whole behaviour with a file that a person can read.
func TestDecisionTable(t *testing.T) {
	got := "# target prime source place marked recorded direct contents -> state [actions]; a|b is either, * is any.\n" +
		enumerate.Table(axes, func(f Facts) string {
			p := Decide(f)
			return fmt.Sprintf("%s %v", p.State, p.Do)
		})
	golden.Equal(t, "testdata/decisions.txt", got)
}

func TestEveryRuleIsAlive(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) { used[Decide(f).Rule] = true })
	for _, r := range rules {
		if !used[r.name] {
			t.Errorf("no situation leads to rule %q", r.name)
		}
		delete(used, r.name)
	}
	for name := range used {
		t.Errorf("some situation has no rule (%q)", name)
	}
}

// TestEveryStateIsSaid: a row of the populations' table that no decision leads to is dead.
func TestEveryStateIsSaid(t *testing.T) {
	said := map[state.Reason]bool{}
	enumerate.Every(axes, func(f Facts) { said[Decide(f).State] = true })
	for _, row := range state.Populations() {
		if !said[row.Reason] {
			t.Errorf("nothing ever says %s", row.Reason)
		}
	}
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		if state.Of(p.State).Phase == cdiv1.Unknown {
			fail("no row for the state")
		}
		if does(Fill) && f.Target != Open {
			fail("a claim is populated again")
		}
		if does(Fill) && f.Source != Found && f.Prime != Full {
			fail("a source is read without permission")
		}
		if does(Begin) && (f.Prime != NoPrime || f.Place != Chosen) {
			fail("begun too early or twice")
		}
		if does(Rebind) && f.Prime != Full {
			fail("a volume given away that is not full")
		}
		if does(DropPrime) && f.Prime == Given && f.Target != Bound {
			fail("the prime is dropped before the target has its volume")
		}
		if does(DropPrime) && (f.Prime == Full || f.Prime == Taken) && (f.Target != Bound || !f.Marked) {
			fail("data that somebody was told is safe is dropped")
		}
		if (does(FillInPlace) || does(BeginInPlace)) && (f.Target != Bound || f.Contents == Unknown || f.Recorded) {
			fail("a target is written to that may hold data")
		}
		if does(BeginInPlace) && (f.Marked || f.Prime != NoPrime) {
			fail("a target is begun that was filled, or is filled in another way")
		}
		if does(FillInPlace) && f.Source != Found {
			fail("a source is read without permission, or that is not there")
		}
		if does(Record) && (f.Target != Bound || !f.Marked) {
			fail("recorded without our volume")
		}
	})
}
