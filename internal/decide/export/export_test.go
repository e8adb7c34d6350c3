package export

import (
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	enumerate.Flag("in-time", "expired", func(f *Facts) *bool { return &f.Expired }),
	enumerate.Enum(Unmade, func(f *Facts) *Source { return &f.Source }),
	enumerate.Enum(Leaving, func(f *Facts) *Server { return &f.Server }),
	enumerate.Flag("unrecorded", "recorded", func(f *Facts) *bool { return &f.Recorded }),
	enumerate.Flag("no-service", "service", func(f *Facts) *bool { return &f.Reachable }),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# time source server record service -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string { return enumerate.Line(Decide(f)) }))
}

func TestEveryRuleIsUsed(t *testing.T) {
	enumerate.Rules(t, axes, rules)
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if state.OfExport(p.State).Phase == "Ready" && (f.Source != Usable || f.Server != Serving) {
			fail("ready, and there is nothing to download, or it may change")
		}
		if p.Does(StartServer) && (f.Source != Usable || f.Server != None || f.Expired) {
			fail("a server is started for what is not to be read, or beside another")
		}
		reads := f.Server == Starting || f.Server == Failing || f.Server == Serving
		if reads && f.Source == InUse && !p.Does(StopServer) && !p.Does(Remove) {
			fail("a disk is read that somebody may write")
		}
		if p.Does(StopServer) && f.Server == None {
			fail("there is no server to stop")
		}
	})
}
