package machineclone

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

func axis[E interface {
	~int
	fmt.Stringer
}](last E, set func(*Facts, E)) enumerate.Axis[Facts] {
	return enumerate.Axis[Facts]{Count: int(last) + 1, Set: func(f *Facts, i int) string {
		set(f, E(i))
		return E(i).String()
	}}
}

var axes = []enumerate.Axis[Facts]{
	axis(Failed, func(f *Facts, o Over) { f.Over = o }),
	axis(Other, func(f *Facts, t Target) { f.Target = t }),
	axis(RestoreTaken, func(f *Facts, r Restore) { f.Restore = r }),
	axis(SnapshotTaken, func(f *Facts, s Snapshot) { f.Snapshot = s }),
	axis(NoSource, func(f *Facts, s Source) { f.Source = s }),
	{Count: 2, Set: func(f *Facts, i int) string {
		f.Wrong = i == 1
		return []string{"possible", "wrong"}[i]
	}},
}

func TestDecisions(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# end target restore snapshot source wish -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string {
			p := Decide(f)
			return fmt.Sprintf("%s %v", p.State, p.Do)
		}))
}

// TestEveryRuleIsUsed: a rule that never wins is a mistake about one that comes before it.
func TestEveryRuleIsUsed(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) { used[Decide(f).Rule] = true })
	for _, r := range rules {
		if !used[r.name] {
			t.Errorf("%q never holds", r.name)
		}
	}
}

// TestInvariants: nobody's machine is touched, nothing is deleted before the clone has ended, and a clone that succeeds has its target.
func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		end := state.OfClone(p.State).End
		if (does(Take) || does(Make)) && (f.Target != NoTarget || f.Over != NotOver || f.Restore != NoRestore) {
			fail("something is made for a target that is there, or after the end")
		}
		if does(Make) && (f.Snapshot != Ready || f.Wrong) {
			fail("a target is made from what cannot be restored")
		}
		if does(Take) && (f.Source != Machine || f.Snapshot != NoSnapshot) {
			fail("a snapshot is taken of nothing, or twice")
		}
		if (does(CleanUp) || does(DropClone)) && f.Over == NotOver {
			fail("something is deleted before the end is recorded")
		}
		if does(DropClone) && f.Target != NoTarget {
			fail("a clone is deleted whose target is there")
		}
		if end == state.Well && f.Over == NotOver && (f.Restore != Restored || f.Target != Ours) {
			fail("complete without its target")
		}
		if f.Over == NotOver && f.Target == Other && end != state.Badly {
			fail("somebody else's machine is taken for the target")
		}
	})
}
