package export

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	{Count: 2, Set: func(f *Facts, i int) string {
		f.Expired = i == 1
		return []string{"in-time", "expired"}[i]
	}},
	{Count: int(Unmade) + 1, Set: func(f *Facts, i int) string { f.Source = Source(i); return f.Source.String() }},
	{Count: int(Leaving) + 1, Set: func(f *Facts, i int) string { f.Server = Server(i); return f.Server.String() }},
	{Count: 2, Set: func(f *Facts, i int) string {
		f.Recorded = i == 1
		return []string{"unrecorded", "recorded"}[i]
	}},
	{Count: 2, Set: func(f *Facts, i int) string {
		f.Reachable = i == 1
		return []string{"no-service", "service"}[i]
	}},
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# time source server record service -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string { p := Decide(f); return fmt.Sprintf("%s %v", p.State, p.Do) }))
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

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if state.OfExport(p.State).Phase == "Ready" && (f.Source != Usable || f.Server != Serving) {
			fail("ready, and there is nothing to download, or it may change")
		}
		if does(StartServer) && (f.Source != Usable || f.Server != None || f.Expired) {
			fail("a server is started for what is not to be read, or beside another")
		}
		reads := f.Server == Starting || f.Server == Failing || f.Server == Serving
		if reads && f.Source == InUse && !does(StopServer) && !does(Remove) {
			fail("a disk is read that somebody may write")
		}
		if does(StopServer) && f.Server == None {
			fail("there is no server to stop")
		}
	})
}
