package update

import (
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	enumerate.Flag("-", "live", func(f *Facts) *bool { return &f.Live }),
	enumerate.Enum(Possible, func(f *Facts) *Change { return &f.Change }),
	enumerate.Enum(Movable, func(f *Facts) *Guest { return &f.Guest }),
	enumerate.Enum(Resting, func(f *Facts) *Moves { return &f.Moves }),
	enumerate.Flag("-", "stale", func(f *Facts) *bool { return &f.Stale }),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# strategy volumes guest moves migration -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string { return enumerate.Line(Decide(f)) }))
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		if p.Does(Migrate) && (!f.Live || f.Change != Possible || f.Guest != Movable || f.Moves != Still || f.Stale) {
			t.Errorf("disks are sent that nobody wants to, or that cannot be: %+v -> %+v", f, p)
		}
		if p.State != "" && f.Change == None {
			t.Errorf("something is said of volumes that did not change: %+v -> %+v", f, p)
		}
		if p.State != "" && state.OfUpdate(p.State).Message == string(p.State) {
			t.Errorf("%s has no row", p.State)
		}
	})
	enumerate.Rules(t, axes, rules)
}
