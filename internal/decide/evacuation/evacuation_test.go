package evacuation

import (
	"fmt"
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	enumerate.Enum(External, func(f *Facts) *Strategy { return &f.Strategy }),
	enumerate.Enum(Movable, func(f *Facts) *Guest { return &f.Guest }),
	enumerate.Flag("-", "asked", func(f *Facts) *bool { return &f.Asked }),
	enumerate.Enum(Resting, func(f *Facts) *Moves { return &f.Moves }),
	enumerate.Flag("-", "guarded", func(f *Facts) *bool { return &f.Guarded }),
}

var askedAxes = []enumerate.Axis[Asked]{
	enumerate.Enum(External, func(a *Asked) *Strategy { return &a.Strategy }),
	enumerate.Enum(Movable, func(a *Asked) *Guest { return &a.Guest }),
	enumerate.Flag("-", "here", func(a *Asked) *bool { return &a.Here }),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# strategy guest asked moves budget -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string { return enumerate.Line(Decide(f)) }))
	golden.Equal(t, "testdata/answers.txt", "# strategy guest here -> refusal marked\n"+
		enumerate.Table(askedAxes, func(a Asked) string {
			r := Reply(a)
			if r.Refusal == "" {
				return "may go"
			}
			return fmt.Sprintf("%s marked=%t", r.Refusal, r.Mark)
		}))
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		if p.Does(Migrate) && (!f.Asked || f.Guest != Movable || f.Moves != Still || !f.Guarded) {
			t.Errorf("a guest is moved that nobody wants to, that cannot, that moves already or that a drain could end meanwhile: %+v -> %+v", f, p)
		}
		if p.Does(Migrate) && (f.Strategy == None || f.Strategy == External) {
			t.Errorf("a guest is moved that is not ours to move: %+v -> %+v", f, p)
		}
		if p.Does(Unguard) && f.Guest != Ended && (f.Strategy == Move || f.Strategy == External) {
			t.Errorf("a guest that has to be kept loses its guard: %+v -> %+v", f, p)
		}
		if (p.Does(Guard) && f.Guarded) || (p.Does(Unguard) && !f.Guarded) {
			t.Errorf("what is so already is done again: %+v -> %+v", f, p)
		}
		if p.State != "" && state.OfEvacuation(p.State).Message == string(p.State) {
			t.Errorf("%s has no row", p.State)
		}
	})
	enumerate.Every(askedAxes, func(a Asked) {
		r := Reply(a)
		if r.Mark && r.Refusal == "" {
			t.Errorf("the pod may go and its guest is to move: %+v -> %+v", a, r)
		}
		if r.Mark && (a.Guest == Ended || !a.Here) {
			t.Errorf("a pod is marked that the guest is not in: %+v -> %+v", a, r)
		}
		// Whatever is refused here has a budget as well: the answer may not come.
		f := Facts{Strategy: a.Strategy, Guest: a.Guest}
		if r.Refusal != "" && a.Here && !f.kept() {
			t.Errorf("only the answer keeps the pod: %+v -> %+v", a, r)
		}
	})
	enumerate.Rules(t, axes, rules)
	enumerate.Rules(t, askedAxes, answers)
}
