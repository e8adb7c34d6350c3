package replace

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

func flag(name string, of func(*Facts) *bool) enumerate.Axis[Facts] {
	return enumerate.Axis[Facts]{Count: 2, Set: func(f *Facts, i int) string {
		*of(f) = i == 1
		return []string{"-", name}[i]
	}}
}

var axes = []enumerate.Axis[Facts]{
	{Count: int(AliasLeaving) + 1, Set: func(f *Facts, i int) string { f.Claim = Claim(i); return f.Claim.String() }},
	{Count: int(Given) + 1, Set: func(f *Facts, i int) string { f.Volume = Volume(i); return f.Volume.String() }},
	{Count: int(Stale) + 1, Set: func(f *Facts, i int) string { f.Alias = Alias(i); return f.Alias.String() }},
	{Count: int(Runs) + 1, Set: func(f *Facts, i int) string { f.Use = Use(i); return f.Use.String() }},
	flag("replacement", func(f *Facts) *bool { return &f.Replacement }),
	flag("earlier", func(f *Facts) *bool { return &f.Earlier }),
	flag("orphaned", func(f *Facts) *bool { return &f.Orphaned }),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# claim volume alias use replacement earlier orphaned -> [actions] current done\n"+
		enumerate.Table(axes, func(f Facts) string {
			p := Decide(f)
			return fmt.Sprintf("%v %t %t", p.Do, p.Current, p.Done)
		}))
}

func TestInvariants(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		used[p.Rule] = true
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
	for _, r := range rules {
		if !used[r.name] {
			t.Errorf("no situation leads to rule %q", r.name)
		}
	}
	if used[""] {
		t.Error("some situation has no rule")
	}
}
