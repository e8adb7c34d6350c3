package update

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
	{Count: 2, Set: func(f *Facts, i int) string { f.Live = i == 1; return either(i, "live") }},
	{Count: int(Possible) + 1, Set: func(f *Facts, i int) string { f.Change = Change(i); return f.Change.String() }},
	{Count: int(Movable) + 1, Set: func(f *Facts, i int) string { f.Guest = Guest(i); return f.Guest.String() }},
	{Count: int(Resting) + 1, Set: func(f *Facts, i int) string { f.Moves = Moves(i); return f.Moves.String() }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Stale = i == 1; return either(i, "stale") }},
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# strategy volumes guest moves migration -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string {
			p := Decide(f)
			return fmt.Sprintf("%s %v", p.State, p.Do)
		}))
}

func TestInvariants(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		used[p.Rule] = true
		if slices.Contains(p.Do, Migrate) && (!f.Live || f.Change != Possible || f.Guest != Movable || f.Moves != Still || f.Stale) {
			t.Errorf("disks are sent that nobody wants to, or that cannot be: %+v -> %+v", f, p)
		}
		if p.State != "" && f.Change == None {
			t.Errorf("something is said of volumes that did not change: %+v -> %+v", f, p)
		}
		if p.State != "" && state.OfUpdate(p.State).Message == string(p.State) {
			t.Errorf("%s has no row", p.State)
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
