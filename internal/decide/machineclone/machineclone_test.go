package machineclone

import (
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	enumerate.Enum(Failed, func(f *Facts) *Over { return &f.Over }),
	enumerate.Enum(Other, func(f *Facts) *Target { return &f.Target }),
	enumerate.Enum(RestoreTaken, func(f *Facts) *Restore { return &f.Restore }),
	enumerate.Enum(SnapshotTaken, func(f *Facts) *Snapshot { return &f.Snapshot }),
	enumerate.Enum(NoSource, func(f *Facts) *Source { return &f.Source }),
	enumerate.Flag("possible", "wrong", func(f *Facts) *bool { return &f.Wrong }),
}

func TestDecisions(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# end target restore snapshot source wish -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string { return enumerate.Line(Decide(f)) }))
}

func TestEveryRuleIsUsed(t *testing.T) {
	enumerate.Rules(t, axes, rules)
}

// TestInvariants: no other machine is changed, nothing is deleted before the clone has ended, and a clone that succeeds has its target.
func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		end := state.OfClone(p.State).End
		if (p.Does(Take) || p.Does(Make)) && (f.Target != NoTarget || f.Over != NotOver || f.Restore != NoRestore) {
			fail("something is made for a target that is there, or after the end")
		}
		if p.Does(Make) && (f.Snapshot != Ready || f.Wrong) {
			fail("a target is made from what cannot be restored")
		}
		if p.Does(Take) && (f.Source != Machine || f.Snapshot != NoSnapshot) {
			fail("a snapshot is taken of nothing, or twice")
		}
		if (p.Does(CleanUp) || p.Does(DropClone)) && f.Over == NotOver {
			fail("something is deleted before the end is recorded")
		}
		if p.Does(DropClone) && f.Target != NoTarget {
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
