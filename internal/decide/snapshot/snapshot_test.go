package snapshot

import (
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var takeAxes = []enumerate.Axis[Facts]{
	enumerate.Flag("going-on", "over", func(f *Facts) *bool { return &f.Over }),
	enumerate.Flag("unrecorded", "recorded", func(f *Facts) *bool { return &f.Recorded }),
	enumerate.Enum(Missing, func(f *Facts) *Cuts { return &f.Cuts }),
	enumerate.Flag("in-time", "late", func(f *Facts) *bool { return &f.Late }),
	enumerate.Enum(Between, func(f *Facts) *Machine { return &f.Machine }),
	enumerate.Enum(Thawed, func(f *Facts) *Quiet { return &f.Quiet }),
	enumerate.Flag("something", "nothing", func(f *Facts) *bool { return &f.Nothing }),
}

var restoreAxes = []enumerate.Axis[RestoreFacts]{
	enumerate.Enum(Failed, func(f *RestoreFacts) *Over { return &f.Over }),
	enumerate.Flag("wanted", "withdrawn", func(f *RestoreFacts) *bool { return &f.Withdrawn }),
	enumerate.Enum(Committed, func(f *RestoreFacts) *Stage { return &f.Stage }),
	enumerate.Enum(Void, func(f *RestoreFacts) *Source { return &f.Source }),
	enumerate.Enum(Contended, func(f *RestoreFacts) *Machine { return &f.Machine }),
	enumerate.Enum(Blocked, func(f *RestoreFacts) *Volumes { return &f.Volumes }),
	enumerate.Enum(Stranger, func(f *RestoreFacts) *Claims { return &f.Claims }),
	enumerate.Enum(Fail, func(f *RestoreFacts) *Policy { return &f.Policy }),
	enumerate.Flag("in-time", "late", func(f *RestoreFacts) *bool { return &f.Late }),
	enumerate.Flag("same", "changed", func(f *RestoreFacts) *bool { return &f.Changed }),
}

func TestTakeTable(t *testing.T) {
	golden.Equal(t, "testdata/take.txt", "# end record cuts time machine guest volumes -> state [actions]\n"+
		enumerate.Table(takeAxes, func(f Facts) string { return enumerate.Line(Take(f)) }))
}

func TestRestoreTable(t *testing.T) {
	golden.Equal(t, "testdata/restore.txt", "# end wish stage snapshot machine volumes claims policy time spec -> state [actions]\n"+
		enumerate.Table(restoreAxes, func(f RestoreFacts) string { return enumerate.Line(Restore(f)) }))
}

func TestEveryRuleIsUsed(t *testing.T) {
	enumerate.Rules(t, takeAxes, takeRules)
	enumerate.Rules(t, restoreAxes, restoreRules)
}

func TestTakeInvariants(t *testing.T) {
	enumerate.Every(takeAxes, func(f Facts) {
		p := Take(f)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		end := state.OfSnapshot(p.State).End
		if end == state.Well && f.Cuts != Usable {
			fail("complete without every volume")
		}
		if p.Does(Shoot) && (!f.Recorded || f.Over) {
			fail("a volume is cut that nothing says belongs to the snapshot, or again")
		}
		if p.Does(Shoot) && f.Machine == Running && f.Quiet == Untouched && !p.Does(Freeze) {
			fail("a running guest is not asked")
		}
		if p.Does(Freeze) && f.Machine != Running {
			fail("there is no guest to freeze")
		}
		if end != state.GoingOn && f.Quiet == Frozen && f.Machine == Running && !f.Over && !p.Does(Thaw) {
			fail("a guest stays frozen for ever")
		}
		if f.Quiet == Frozen && f.Machine == Running && f.Cuts == Cut && !f.Over && !p.Does(Thaw) {
			fail("a guest is frozen longer than it must be")
		}
		if p.Does(Thaw) && (f.Cuts == Cutting || f.Cuts == Missing) && !f.Late {
			fail("a guest goes on before its volumes are cut")
		}
	})
}

func TestRestoreInvariants(t *testing.T) {
	enumerate.Every(restoreAxes, func(f RestoreFacts) {
		p := Restore(f)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		end := state.OfSnapshot(p.State).End
		destroys := p.Does(DropClaims) || p.Does(Give)
		if (destroys || p.Does(Commit)) && (f.Volumes != There || f.Machine != Stopped || f.Over != NotOver) {
			fail("something of the old goes before every new volume is there and the machine is stopped")
		}
		if destroys && f.Stage != Committed {
			fail("something of the old goes before it is written down that there is no way back")
		}
		if p.Does(DropClaims) && f.Claims != Old || p.Does(Commit) && (f.Claims == InUse || f.Claims == Stranger) {
			fail("claims are deleted that somebody uses, or that are not the machine's")
		}
		if p.Does(Commit) && (f.Withdrawn || f.Source != Ready) {
			fail("a restore goes beyond the point of no return that is withdrawn, or whose snapshot is not whole")
		}
		if f.Withdrawn && f.Stage != Committed && !slices.Equal(p.Do, []Action{CleanUp}) {
			fail("a restore that is withdrawn does something else")
		}
		// A machine that is another one is never committed to.
		if f.Stage == Committed && f.Over == NotOver && f.Machine != Other && (end == state.Badly || p.Does(CleanUp) && end != state.Well) {
			fail("a restore gives up between the old disks and the new ones")
		}
		if end == state.Badly && f.Over == NotOver && f.Machine != Other && !p.Does(CleanUp) {
			fail("a restore that gives up leaves its volumes")
		}
		if f.Over != NotOver && !f.Withdrawn && len(p.Do) > 0 {
			fail("a restore that is over does something")
		}
		if p.Does(StopMachine) && f.Policy != Stop && f.Stage == Preparing {
			fail("a machine is stopped that nobody asked to stop")
		}
		if p.Does(StopMachine) && f.Stage == Preparing && f.Volumes != There {
			fail("a machine is stopped before its volumes are there")
		}
		if end == state.Well && f.Over == NotOver && (f.Claims != Bound || f.Changed || f.Stage == Preparing && f.Source != Ready) {
			fail("complete without its data")
		}
		if (f.Claims == Stranger || f.Machine == Other || f.Machine == Contended) && len(p.Do) > 0 && !slices.Equal(p.Do, []Action{CleanUp}) {
			fail("somebody else's claim or machine is touched")
		}
		if p.Does(MakeMachine) && (f.Source != Ready && f.Stage != Committed || f.Machine != NoMachine) {
			fail("a machine is made that is there, or from nothing")
		}
		if p.Does(MakeVolumes) && f.Stage == Preparing && !p.Does(Guard) {
			fail("volumes are made that nobody would remove")
		}
	})
}
