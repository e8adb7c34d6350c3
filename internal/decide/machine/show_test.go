package machine

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

func reasonAxis(field func(*ShowFacts) *state.MachineReason, reasons ...state.MachineReason) enumerate.Axis[ShowFacts] {
	return enumerate.Axis[ShowFacts]{Count: len(reasons), Set: func(f *ShowFacts, i int) string {
		*field(f) = reasons[i]
		return cmp.Or(string(reasons[i]), "-")
	}}
}

// showAxes has every fact. Of the decided reasons it has those that a rule asks for, and Stopping for all others; of the reasons that disks and
// servers bring along, one that stands for all.
var showAxes = []enumerate.Axis[ShowFacts]{
	reasonAxis(func(f *ShowFacts) *state.MachineReason { return &f.Decided }, state.GuestRunning, state.LauncherStarting, state.LauncherUnplaceable,
		state.DiskMissing, state.DiskFailed, state.GuestFailed, state.CrashLoop, state.Stopping),
	enumerate.Flag("answers", "away", func(f *ShowFacts) *bool { return &f.NodeAway }),
	enumerate.Flag("stays", "ends", func(f *ShowFacts) *bool { return &f.Ending }),
	enumerate.Enum(Arriving, func(f *ShowFacts) *Guest { return &f.Guest }),
	enumerate.Flag("-", "keeping", func(f *ShowFacts) *bool { return &f.Keeping }),
	enumerate.Flag("-", "copying", func(f *ShowFacts) *bool { return &f.Copying }),
	enumerate.Flag("-", "paused", func(f *ShowFacts) *bool { return &f.Paused }),
	reasonAxis(func(f *ShowFacts) *state.MachineReason { return &f.Stuck }, "", state.GuestPaused, state.DiskFull),
	reasonAxis(func(f *ShowFacts) *state.MachineReason { return &f.Disk }, "", state.DiskForbidden),
	reasonAxis(func(f *ShowFacts) *state.MachineReason { return &f.Server }, "", state.DiskUnreachable),
	enumerate.Flag("-", "unoffered", func(f *ShowFacts) *bool { return &f.Unoffered }),
	enumerate.Flag("-", "lost", func(f *ShowFacts) *bool { return &f.Lost }),
}

func TestShowTable(t *testing.T) {
	golden.Equal(t, "testdata/show.txt", "# decided node launcher guest keeping copying paused stuck disk server medium data -> reason base\n"+
		enumerate.Table(showAxes, func(f ShowFacts) string {
			s := Show(f)
			return fmt.Sprintf("%s %v", s.Reason, s.Base)
		}))
}

func TestShowInvariants(t *testing.T) {
	enumerate.Every(showAxes, func(f ShowFacts) {
		s := Show(f)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, s) }
		row := state.OfMachine(s.Reason)
		if row.Reason == "" {
			fail("it has no row")
		}
		if row.Ready && s.Base == Own && (f.NodeAway || f.Paused && f.Guest != Arriving || f.Decided != state.GuestRunning) {
			fail("it is called ready")
		}
		if f.NodeAway && (s.Reason == state.GuestRunning || s.Reason == state.Keeping) {
			fail("the last known state of a node that is away is shown")
		}
		if s.Base != Own && s.Reason == f.Decided {
			fail("a reason stands on itself")
		}
	})
	enumerate.Rules(t, showAxes, showRules)
}
