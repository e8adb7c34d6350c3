package migration

import (
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	{Count: 3, Set: func(f *Facts, i int) string {
		f.Over, f.Shown = i > 0, i > 1
		return []string{"-", "over", "shown"}[i]
	}},
	enumerate.Flag("-", "cancelled", func(f *Facts) *bool { return &f.Cancelled }),
	enumerate.Enum(Vanished, func(f *Facts) *Guest { return &f.Guest }),
	enumerate.Enum(Going, func(f *Facts) *Target { return &f.Target }),
	enumerate.Flag("-", "late", func(f *Facts) *bool { return &f.Late }),
	enumerate.Enum(Keeps, func(f *Facts) *Word { return &f.Word }),
	enumerate.Flag("-", "granted", func(f *Facts) *bool { return &f.Granted }),
	{Count: 3, Set: func(f *Facts, i int) string {
		f.Told, f.ToldOff = i > 0, i > 1
		return []string{"-", "told", "toldOff"}[i]
	}},
	enumerate.Flag("-", "handed", func(f *Facts) *bool { return &f.Handed }),
	enumerate.Flag("-", "unnamed", func(f *Facts) *bool { return &f.Unnamed }),
	enumerate.Flag("-", "ran", func(f *Facts) *bool { return &f.Ran }),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# over cancelled guest target late word disks source run claims ran -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string { return enumerate.Line(Decide(f)) }))
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		phase := state.OfMigration(p.State).Phase
		end := p.State != "" && (phase == kubevirt.MigrationFailed || phase == kubevirt.MigrationSucceeded)
		if p.Does(StopTarget) && !f.Over {
			t.Errorf("a target is ended before it is said why: %+v -> %+v", f, p)
		}
		if end && !p.Does(DropKeys) {
			t.Errorf("a migration ends and leaves its keys: %+v -> %+v", f, p)
		}
		if end && !p.Does(DropLeft) {
			t.Errorf("a migration ends and leaves claims: %+v -> %+v", f, p)
		}
		if p.Does(HandOver) && f.Guest != Sent && f.Target != Runs {
			t.Errorf("a target is told to run the guest of a source that has not said that it left: %+v -> %+v", f, p)
		}
		if p.Does(StopTarget) && (f.Handed || f.Guest == Sent) {
			t.Errorf("the only guest is ended: %+v -> %+v", f, p)
		}
		if end && !f.Handed && f.Target != Ended && f.Guest != Sent && f.Told && f.Word != Keeps && f.Guest != Vanished {
			t.Errorf("a migration ends, and with it its target, that the source may have sent its guest to: %+v -> %+v", f, p)
		}
		if p.Does(StopSource) && (!f.Handed || f.Target != Runs) {
			t.Errorf("a source is ended although its guest does not run elsewhere: %+v -> %+v", f, p)
		}
		if p.Does(TellSource) && (!f.Granted || f.Guest != Here) {
			t.Errorf("a guest is sent to a target that may not have its disks, or is not there to be sent: %+v -> %+v", f, p)
		}
		if p.Does(LetGo) && !f.Over {
			t.Errorf("a migration goes before it has ended: %+v -> %+v", f, p)
		}
	})
	enumerate.Rules(t, axes, rules)
}
