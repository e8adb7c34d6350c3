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

var movers = []Target{NoTarget, Waiting, Unplaceable, Placed, Ended, Going}

var offlineAxes = []enumerate.Axis[OfflineFacts]{
	{Count: 2, Set: func(f *OfflineFacts, i int) string { f.Over = i == 1; return either(i, "-", "over") }},
	{Count: int(Recorded) + 1, Set: func(f *OfflineFacts, i int) string { f.Copies = Copies(i); return f.Copies.String() }},
	{Count: 2, Set: func(f *OfflineFacts, i int) string { f.Cancelled = i == 1; return either(i, "-", "cancelled") }},
	{Count: 2, Set: func(f *OfflineFacts, i int) string { f.Runs = i == 1; return either(i, "stopped", "runs") }},
	{Count: 2, Set: func(f *OfflineFacts, i int) string { f.Held = i == 1; return either(i, "-", "held") }},
	{Count: 2, Set: func(f *OfflineFacts, i int) string { f.Fixed = i == 1; return either(i, "-", "fixed") }},
	{Count: 2, Set: func(f *OfflineFacts, i int) string { f.Busy = i == 1; return either(i, "-", "busy") }},
	{Count: 2, Set: func(f *OfflineFacts, i int) string { f.Written = i == 1; return either(i, "-", "written") }},
	{Count: len(movers), Set: func(f *OfflineFacts, i int) string { f.Pod = movers[i]; return f.Pod.String() }},
	{Count: 2, Set: func(f *OfflineFacts, i int) string { f.Late = i == 1; return either(i, "-", "late") }},
	{Count: 2, Set: func(f *OfflineFacts, i int) string { f.Gated = i == 1; return either(i, "-", "gated") }},
}

func TestOfflineTable(t *testing.T) {
	golden.Equal(t, "testdata/offline.txt", "# over copies cancelled machine disks fixed names written pod late gate -> state [actions]\n"+
		enumerate.Table(offlineAxes, func(f OfflineFacts) string {
			p := Offline(f)
			return fmt.Sprintf("%s %v", p.State, p.Do)
		}))
}

func TestOfflineInvariants(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(offlineAxes, func(f OfflineFacts) {
		p := Offline(f)
		used[p.Rule] = true
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		if does(Record) && (!f.Held || f.Copies != Filled || f.Cancelled || f.Written) && f.Copies != Partly {
			t.Errorf("copies that may be old or not complete count as the data: %+v -> %+v", f, p)
		}
		if (does(MakeCopies) || does(Place)) && !f.Held {
			t.Errorf("a disk is read that somebody may write to: %+v -> %+v", f, p)
		}
		if does(StopMover) && !f.Over {
			t.Errorf("the disks are let go before the end: %+v -> %+v", f, p)
		}
		if does(LetGo) && !f.Over {
			t.Errorf("a migration goes before it has ended: %+v -> %+v", f, p)
		}
		phase := state.OfMigration(p.State).Phase
		if p.State != "" && phase == kubevirt.MigrationSucceeded && f.Copies != Recorded {
			t.Errorf("it is said to have succeeded and has not: %+v -> %+v", f, p)
		}
		if p.State != "" && phase == kubevirt.MigrationFailed && (f.Copies == Recorded || f.Copies == Partly || !does(DropLeft)) {
			t.Errorf("it is said to have failed and has not, or leaves claims: %+v -> %+v", f, p)
		}
	})
	for _, r := range offlineRules {
		if !used[r.name] {
			t.Errorf("no situation leads to rule %q", r.name)
		}
	}
	if used[""] {
		t.Error("some situation has no rule")
	}
}
