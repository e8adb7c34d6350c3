package populate

import (
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	enumerate.Enum(Leaving, func(f *Facts) *Target { return &f.Target }),
	enumerate.Enum(Going, func(f *Facts) *Prime { return &f.Prime }),
	enumerate.Enum(Broken, func(f *Facts) *Source { return &f.Source }),
	enumerate.Enum(Classless, func(f *Facts) *Place { return &f.Place }),
	enumerate.Flag("false", "true", func(f *Facts) *bool { return &f.Marked }),
	enumerate.Flag("false", "true", func(f *Facts) *bool { return &f.Recorded }),
	enumerate.Flag("false", "true", func(f *Facts) *bool { return &f.Direct }),
	enumerate.Enum(Begun, func(f *Facts) *Contents { return &f.Contents }),
}

// TestDecisionTable compares the whole behaviour with a file that a person can read.
func TestDecisionTable(t *testing.T) {
	got := "# target prime source place marked recorded direct contents -> state [actions]; a|b is either, * is any.\n" +
		enumerate.Table(axes, func(f Facts) string { return enumerate.Line(Decide(f)) })
	golden.Equal(t, "testdata/decisions.txt", got)
}

func TestEveryRuleIsAlive(t *testing.T) {
	enumerate.Rules(t, axes, rules)
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
		if state.Of(p.State).Phase == cdiv1.Unknown {
			fail("no row for the state")
		}
		if p.Does(Fill) && f.Target != Open {
			fail("a claim is populated again")
		}
		if p.Does(Fill) && f.Source != Found && f.Prime != Full {
			fail("a source is read without permission")
		}
		if p.Does(Begin) && (f.Prime != NoPrime || f.Place != Chosen) {
			fail("begun too early or twice")
		}
		if p.Does(Rebind) && f.Prime != Full {
			fail("a volume given away that is not full")
		}
		if p.Does(DropPrime) && f.Prime == Given && f.Target != Bound {
			fail("the prime is dropped before the target has its volume")
		}
		if p.Does(DropPrime) && (f.Prime == Full || f.Prime == Taken) && (f.Target != Bound || !f.Marked) {
			fail("data that somebody was told is safe is dropped")
		}
		if (p.Does(FillInPlace) || p.Does(BeginInPlace)) && (f.Target != Bound || f.Contents == Unknown || f.Recorded) {
			fail("a target is written to that may hold data")
		}
		if p.Does(BeginInPlace) && (f.Marked || f.Prime != NoPrime) {
			fail("a target is begun that was filled, or is filled in another way")
		}
		if p.Does(FillInPlace) && f.Source != Found {
			fail("a source is read without permission, or that is not there")
		}
		if p.Does(Record) && (f.Target != Bound || !f.Marked) {
			fail("recorded without our volume")
		}
	})
}
