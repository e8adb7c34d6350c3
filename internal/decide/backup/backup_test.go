package backup

import (
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	enumerate.Flag("going-on", "over", func(f *Facts) *bool { return &f.Over }),
	enumerate.Flag("wanted", "deleted", func(f *Facts) *bool { return &f.Deleted }),
	enumerate.Enum(Vanished, func(f *Facts) *Worker { return &f.Worker }),
	enumerate.Flag("guest-there", "guest-gone", func(f *Facts) *bool { return &f.Gone }),
	enumerate.Flag("in-time", "late", func(f *Facts) *bool { return &f.Late }),
	enumerate.Flag("has-time", "expired", func(f *Facts) *bool { return &f.Expired }),
	enumerate.Enum(Unknown, func(f *Facts) *Fetched { return &f.Fetched }),
	enumerate.Flag("push", "pull", func(f *Facts) *bool { return &f.Pull }),
	enumerate.Enum(DiskUsed, func(f *Facts) *Machine { return &f.Machine }),
	enumerate.Enum(InUse, func(f *Facts) *Target { return &f.Target }),
	enumerate.Flag("unprotected", "protected", func(f *Facts) *bool { return &f.Protected }),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# over deleted worker guest late time fetched mode machine target protected -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string { return enumerate.Line(Decide(f)) }))
}

func TestEveryRuleIsUsed(t *testing.T) {
	enumerate.Rules(t, axes, rules)
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		row := state.OfBackup(p.State)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		there := f.Worker == Written || f.Worker == Serving && f.Fetched == All
		if p.State == state.BackupDone && !there {
			fail("complete, and nothing was written or fetched")
		}
		if p.Does(Record, Keep) && !there {
			fail("changes are recorded since a backup that is not there")
		}
		if p.Does(Hold) && (!f.Protected || f.Machine != Running || f.Target != Usable || f.Worker != NoWorker || f.Deleted || f.Over) {
			fail("disks are held without need, or could be forgotten")
		}
		if p.Does(Read) && (!f.Protected || f.Machine != Stopped || f.Target != Usable || f.Worker != NoWorker || f.Deleted || f.Over) {
			fail("claims are read without need, or while the machine may write to them")
		}
		held := f.Worker != NoWorker && f.Protected && !f.Gone && !f.Over
		if held && row.Ends() && p.State != state.BackupOver && !p.Does(Keep, GiveUp) && p.State != state.BackupOvertaken {
			fail("it ends, and the launcher is not told")
		}
		if p.Does(LetGo) && f.Protected && !f.Over && !p.Does(GiveUp) && !p.Does(Keep) {
			fail("it is forgotten, and the launcher may hold disks for it")
		}
		if f.Over && p.State != state.BackupOver {
			fail("what has ended changes")
		}
	})
}
