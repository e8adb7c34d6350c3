package migration

import (
	"fmt"
	"slices"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

func either(i int, no, yes string) string {
	if i == 1 {
		return yes
	}
	return no
}

var axes = []enumerate.Axis[Facts]{
	{Count: 3, Set: func(f *Facts, i int) string {
		f.Over, f.Shown = i > 0, i > 1
		return []string{"-", "over", "shown"}[i]
	}},
	{Count: 2, Set: func(f *Facts, i int) string { f.Cancelled = i == 1; return either(i, "-", "cancelled") }},
	{Count: int(Vanished) + 1, Set: func(f *Facts, i int) string { f.Guest = Guest(i); return f.Guest.String() }},
	{Count: int(Going) + 1, Set: func(f *Facts, i int) string { f.Target = Target(i); return f.Target.String() }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Late = i == 1; return either(i, "-", "late") }},
	{Count: int(Keeps) + 1, Set: func(f *Facts, i int) string { f.Word = Word(i); return f.Word.String() }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Granted = i == 1; return either(i, "-", "granted") }},
	{Count: 3, Set: func(f *Facts, i int) string {
		f.Told, f.ToldOff = i > 0, i > 1
		return []string{"-", "told", "toldOff"}[i]
	}},
	{Count: 2, Set: func(f *Facts, i int) string { f.Handed = i == 1; return either(i, "-", "handed") }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Unnamed = i == 1; return either(i, "-", "unnamed") }},
	{Count: 2, Set: func(f *Facts, i int) string { f.Ran = i == 1; return either(i, "-", "ran") }},
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# over cancelled guest target late word disks source run claims ran -> state [actions]\n"+
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
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		phase := state.OfMigration(p.State).Phase
		end := p.State != "" && (phase == kubevirt.MigrationFailed || phase == kubevirt.MigrationSucceeded)
		if does(StopTarget) && !f.Over {
			t.Errorf("a target is ended before it is said why: %+v -> %+v", f, p)
		}
		if end && !does(DropKeys) {
			t.Errorf("a migration ends and leaves its keys: %+v -> %+v", f, p)
		}
		if end && !does(DropLeft) {
			t.Errorf("a migration ends and leaves claims: %+v -> %+v", f, p)
		}
		if does(HandOver) && f.Guest != Sent && f.Target != Runs {
			t.Errorf("a target is told to run the guest of a source that has not said that it left: %+v -> %+v", f, p)
		}
		if does(StopTarget) && (f.Handed || f.Guest == Sent) {
			t.Errorf("the only guest is ended: %+v -> %+v", f, p)
		}
		if end && !f.Handed && f.Target != Ended && f.Guest != Sent && f.Told && f.Word != Keeps && f.Guest != Vanished {
			t.Errorf("a migration ends, and with it its target, that the source may have sent its guest to: %+v -> %+v", f, p)
		}
		if does(StopSource) && (!f.Handed || f.Target != Runs) {
			t.Errorf("a source is ended although its guest does not run elsewhere: %+v -> %+v", f, p)
		}
		if does(TellSource) && (!f.Granted || f.Guest != Here) {
			t.Errorf("a guest is sent to a target that may not have its disks, or is not there to be sent: %+v -> %+v", f, p)
		}
		if does(LetGo) && !f.Over {
			t.Errorf("a migration goes before it has ended: %+v -> %+v", f, p)
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
