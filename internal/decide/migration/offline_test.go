package migration

import (
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var movers = []Target{NoTarget, Waiting, Unplaceable, Placed, Ended, Going}

var offlineAxes = []enumerate.Axis[OfflineFacts]{
	enumerate.Flag("-", "over", func(f *OfflineFacts) *bool { return &f.Over }),
	enumerate.Enum(Recorded, func(f *OfflineFacts) *Copies { return &f.Copies }),
	enumerate.Flag("-", "cancelled", func(f *OfflineFacts) *bool { return &f.Cancelled }),
	enumerate.Flag("stopped", "runs", func(f *OfflineFacts) *bool { return &f.Runs }),
	enumerate.Flag("-", "held", func(f *OfflineFacts) *bool { return &f.Held }),
	enumerate.Flag("-", "fixed", func(f *OfflineFacts) *bool { return &f.Fixed }),
	enumerate.Flag("-", "busy", func(f *OfflineFacts) *bool { return &f.Busy }),
	enumerate.Flag("-", "written", func(f *OfflineFacts) *bool { return &f.Written }),
	{Count: len(movers), Set: func(f *OfflineFacts, i int) string { f.Pod = movers[i]; return f.Pod.String() }},
	enumerate.Flag("-", "late", func(f *OfflineFacts) *bool { return &f.Late }),
	enumerate.Flag("-", "gated", func(f *OfflineFacts) *bool { return &f.Gated }),
}

func TestOfflineTable(t *testing.T) {
	golden.Equal(t, "testdata/offline.txt", "# over copies cancelled machine disks fixed names written pod late gate -> state [actions]\n"+
		enumerate.Table(offlineAxes, func(f OfflineFacts) string { return enumerate.Line(Offline(f)) }))
}

func TestOfflineInvariants(t *testing.T) {
	enumerate.Every(offlineAxes, func(f OfflineFacts) {
		p := Offline(f)
		if p.Does(Record) && (!f.Held || f.Copies != Filled || f.Cancelled || f.Written) && f.Copies != Partly {
			t.Errorf("copies that may be old or not complete count as the data: %+v -> %+v", f, p)
		}
		if (p.Does(MakeCopies) || p.Does(Place)) && !f.Held {
			t.Errorf("a disk is read that somebody may write to: %+v -> %+v", f, p)
		}
		if p.Does(StopMover) && !f.Over {
			t.Errorf("the disks are let go before the end: %+v -> %+v", f, p)
		}
		if p.Does(LetGo) && !f.Over {
			t.Errorf("a migration goes before it has ended: %+v -> %+v", f, p)
		}
		phase := state.OfMigration(p.State).Phase
		if p.State != "" && phase == kubevirt.MigrationSucceeded && f.Copies != Recorded {
			t.Errorf("it is said to have succeeded and has not: %+v -> %+v", f, p)
		}
		if p.State != "" && phase == kubevirt.MigrationFailed && (f.Copies == Recorded || f.Copies == Partly || !p.Does(DropLeft)) {
			t.Errorf("it is said to have failed and has not, or leaves claims: %+v -> %+v", f, p)
		}
	})
	enumerate.Rules(t, offlineAxes, offlineRules)
}
