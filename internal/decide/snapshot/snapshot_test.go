package snapshot

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

func flagAxis[F any](no, yes string, set func(*F, bool)) enumerate.Axis[F] {
	return enumerate.Axis[F]{Count: 2, Set: func(f *F, i int) string {
		set(f, i == 1)
		return []string{no, yes}[i]
	}}
}

func enumAxis[F any, E interface {
	~int
	fmt.Stringer
}](last E, set func(*F, E)) enumerate.Axis[F] {
	return enumerate.Axis[F]{Count: int(last) + 1, Set: func(f *F, i int) string {
		set(f, E(i))
		return E(i).String()
	}}
}

var takeAxes = []enumerate.Axis[Facts]{
	flagAxis("going-on", "over", func(f *Facts, b bool) { f.Over = b }),
	flagAxis("unrecorded", "recorded", func(f *Facts, b bool) { f.Recorded = b }),
	enumAxis(Missing, func(f *Facts, c Cuts) { f.Cuts = c }),
	flagAxis("in-time", "late", func(f *Facts, b bool) { f.Late = b }),
	enumAxis(Between, func(f *Facts, m Machine) { f.Machine = m }),
	enumAxis(Thawed, func(f *Facts, q Quiet) { f.Quiet = q }),
	flagAxis("something", "nothing", func(f *Facts, b bool) { f.Nothing = b }),
}

var restoreAxes = []enumerate.Axis[RestoreFacts]{
	enumAxis(Failed, func(f *RestoreFacts, o Over) { f.Over = o }),
	flagAxis("wanted", "withdrawn", func(f *RestoreFacts, b bool) { f.Withdrawn = b }),
	enumAxis(Committed, func(f *RestoreFacts, s Stage) { f.Stage = s }),
	enumAxis(Void, func(f *RestoreFacts, s Source) { f.Source = s }),
	enumAxis(Contended, func(f *RestoreFacts, m Machine) { f.Machine = m }),
	enumAxis(Blocked, func(f *RestoreFacts, v Volumes) { f.Volumes = v }),
	enumAxis(Stranger, func(f *RestoreFacts, c Claims) { f.Claims = c }),
	enumAxis(Fail, func(f *RestoreFacts, p Policy) { f.Policy = p }),
	flagAxis("in-time", "late", func(f *RestoreFacts, b bool) { f.Late = b }),
	flagAxis("same", "changed", func(f *RestoreFacts, b bool) { f.Changed = b }),
}

func line(p Plan) string { return fmt.Sprintf("%s %v", p.State, p.Do) }

func TestTakeTable(t *testing.T) {
	golden.Equal(t, "testdata/take.txt", "# end record cuts time machine guest volumes -> state [actions]\n"+
		enumerate.Table(takeAxes, func(f Facts) string { return line(Take(f)) }))
}

func TestRestoreTable(t *testing.T) {
	golden.Equal(t, "testdata/restore.txt", "# end wish stage snapshot machine volumes claims policy time spec -> state [actions]\n"+
		enumerate.Table(restoreAxes, func(f RestoreFacts) string { return line(Restore(f)) }))
}

// TestEveryRuleIsUsed: a rule that never wins is a mistake about one that comes before it.
func TestEveryRuleIsUsed(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(takeAxes, func(f Facts) { used[Take(f).Rule] = true })
	enumerate.Every(restoreAxes, func(f RestoreFacts) { used[Restore(f).Rule] = true })
	for _, r := range takeRules {
		if !used[r.name] {
			t.Errorf("snapshot: %q never holds", r.name)
		}
	}
	for _, r := range restoreRules {
		if !used[r.name] {
			t.Errorf("restore: %q never holds", r.name)
		}
	}
}

func TestTakeInvariants(t *testing.T) {
	enumerate.Every(takeAxes, func(f Facts) {
		p := Take(f)
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		end := state.OfSnapshot(p.State).End
		if end == state.Well && f.Cuts != Usable {
			fail("complete without every volume")
		}
		if does(Shoot) && (!f.Recorded || f.Over) {
			fail("a volume is cut that nothing says belongs to the snapshot, or again")
		}
		if does(Shoot) && f.Machine == Running && f.Quiet == Untouched && !does(Freeze) {
			fail("a running guest is not asked")
		}
		if does(Freeze) && f.Machine != Running {
			fail("there is no guest to freeze")
		}
		if end != state.GoingOn && f.Quiet == Frozen && f.Machine == Running && !f.Over && !does(Thaw) {
			fail("a guest stays frozen for ever")
		}
		if f.Quiet == Frozen && f.Machine == Running && f.Cuts == Cut && !f.Over && !does(Thaw) {
			fail("a guest is frozen longer than it must be")
		}
		if does(Thaw) && (f.Cuts == Cutting || f.Cuts == Missing) && !f.Late {
			fail("a guest goes on before its volumes are cut")
		}
	})
}

func TestRestoreInvariants(t *testing.T) {
	enumerate.Every(restoreAxes, func(f RestoreFacts) {
		p := Restore(f)
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		end := state.OfSnapshot(p.State).End
		destroys := does(DropClaims) || does(Give)
		if (destroys || does(Commit)) && (f.Volumes != There || f.Machine != Stopped || f.Over != NotOver) {
			fail("something of the old goes before every new volume is there and the machine is stopped")
		}
		if destroys && f.Stage != Committed {
			fail("something of the old goes before it is written down that there is no way back")
		}
		if does(DropClaims) && f.Claims != Old || does(Commit) && (f.Claims == InUse || f.Claims == Stranger) {
			fail("claims are deleted that somebody uses, or that are not the machine's")
		}
		if does(Commit) && (f.Withdrawn || f.Source != Ready) {
			fail("a restore goes beyond the point of no return that is withdrawn, or whose snapshot is not whole")
		}
		if f.Withdrawn && f.Stage != Committed && !slices.Equal(p.Do, []Action{CleanUp}) {
			fail("a restore that is withdrawn does something else")
		}
		// A machine that is another one is never committed to.
		if f.Stage == Committed && f.Over == NotOver && f.Machine != Other && (end == state.Badly || does(CleanUp) && end != state.Well) {
			fail("a restore gives up between the old disks and the new ones")
		}
		if end == state.Badly && f.Over == NotOver && f.Machine != Other && !does(CleanUp) {
			fail("a restore that gives up leaves its volumes")
		}
		if f.Over != NotOver && !f.Withdrawn && len(p.Do) > 0 {
			fail("a restore that is over does something")
		}
		if does(StopMachine) && f.Policy != Stop && f.Stage == Preparing {
			fail("a machine is stopped that nobody asked to stop")
		}
		if does(StopMachine) && f.Stage == Preparing && f.Volumes != There {
			fail("a machine is stopped before its volumes are there")
		}
		if end == state.Well && f.Over == NotOver && (f.Claims != Bound || f.Changed || f.Stage == Preparing && f.Source != Ready) {
			fail("complete without its data")
		}
		if (f.Claims == Stranger || f.Machine == Other || f.Machine == Contended) && len(p.Do) > 0 && !slices.Equal(p.Do, []Action{CleanUp}) {
			fail("somebody else's claim or machine is touched")
		}
		if does(MakeMachine) && (f.Source != Ready && f.Stage != Committed || f.Machine != NoMachine) {
			fail("a machine is made that is there, or from nothing")
		}
		if does(MakeVolumes) && f.Stage == Preparing && !does(Guard) {
			fail("volumes are made that nobody would remove")
		}
	})
}
