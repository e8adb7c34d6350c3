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
	{Count: int(Bound) + 1, Set: func(f *Facts, i int) string { f.Claim = Claim(i); return f.Claim.String() }},
	{Count: int(Given) + 1, Set: func(f *Facts, i int) string { f.Volume = Volume(i); return f.Volume.String() }},
	flag("used", func(f *Facts) *bool { return &f.Used }),
	flag("replacement", func(f *Facts) *bool { return &f.Replacement }),
	flag("earlier", func(f *Facts) *bool { return &f.Earlier }),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# claim volume used replacement earlier -> [actions] done\n"+
		enumerate.Table(axes, func(f Facts) string {
			p := Decide(f)
			return fmt.Sprintf("%v %t", p.Do, p.Done)
		}))
}

func TestInvariants(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		used[p.Rule] = true
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		if (does(DropClaim) || does(Give)) && f.Used {
			t.Errorf("a claim is taken from a launcher: %+v -> %+v", f, p)
		}
		if does(DropClaim) && (f.Claim != Old || p.Do[0] != Note) {
			t.Errorf("a claim is deleted that is not the one whose data moved, or before it is noted: %+v -> %+v", f, p)
		}
		if (does(DropReplacement) || does(Clear)) && f.Claim != Bound {
			t.Errorf("the only claim of the data goes, or what is known of it: %+v -> %+v", f, p)
		}
		if does(Clear) && (f.Earlier || f.Replacement) {
			t.Errorf("the last record goes, and an earlier one counts: %+v -> %+v", f, p)
		}
		if p.Done != (f.Claim == Bound && !f.Earlier && !f.Replacement) {
			t.Errorf("done: %+v -> %+v", f, p)
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
