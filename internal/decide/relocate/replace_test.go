package relocate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	enumerate.Enum(AliasLeaving, func(f *Facts) *Claim { return &f.Claim }),
	enumerate.Enum(Given, func(f *Facts) *Volume { return &f.Volume }),
	enumerate.Enum(Stale, func(f *Facts) *Alias { return &f.Alias }),
	enumerate.Enum(Runs, func(f *Facts) *Use { return &f.Use }),
	enumerate.Flag("-", "replacement", func(f *Facts) *bool { return &f.Replacement }),
	enumerate.Flag("-", "earlier", func(f *Facts) *bool { return &f.Earlier }),
	enumerate.Flag("-", "orphaned", func(f *Facts) *bool { return &f.Orphaned }),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# claim volume alias use replacement earlier orphaned -> [actions] current done\n"+
		enumerate.Table(axes, func(f Facts) string {
			p := Decide(f)
			return fmt.Sprintf("%v %t %t", p.Do, p.Current, p.Done)
		}))
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		does := func(actions ...Action) bool {
			return slices.ContainsFunc(actions, func(a Action) bool { return slices.Contains(p.Do, a) })
		}
		has := f.Claim == Bound || f.Claim == Aliased || f.Claim == AliasLeaving
		if does(Give, MakeClaim) && f.Use != Free {
			t.Errorf("a volume is taken from a pod that uses it: %+v -> %+v", f, p)
		}
		if does(DropClaim) && (f.Claim != Old || p.Do[0] != Note) {
			t.Errorf("a claim is deleted that is not the one whose data moved, or before it is noted: %+v -> %+v", f, p)
		}
		if does(DropReplacement, DropVolume, DropEarlier, Clear) && !has {
			t.Errorf("the only claim of the data goes, or what is known of it: %+v -> %+v", f, p)
		}
		if does(DropReplacement, DropVolume) && f.Use != Free && f.Claim != Bound {
			t.Errorf("a running launcher loses its claim: %+v -> %+v", f, p)
		}
		if does(DropVolume) && (f.Replacement || f.Claim == Bound) {
			t.Errorf("a volume goes that a claim has: %+v -> %+v", f, p)
		}
		if does(Clear) && (f.Earlier || f.Replacement) {
			t.Errorf("the last record goes, and an earlier one counts: %+v -> %+v", f, p)
		}
		if does(Finish) && f.Volume != Gone {
			t.Errorf("two PersistentVolumes of one volume could both delete it: %+v -> %+v", f, p)
		}
		if does(Abandon) && (!f.Orphaned || f.Replacement || f.Use != Free || f.Claim != Absent) {
			t.Errorf("data goes that somebody can have: %+v -> %+v", f, p)
		}
		if p.Current && f.Volume != Gone && f.Claim != Bound && f.Claim != Aliased {
			t.Errorf("old data looks current: %+v -> %+v", f, p)
		}
	})
	enumerate.Rules(t, axes, rules)
}
