package schedule

import (
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	enumerate.Flag("readable", "wrong", func(f *Facts) *bool { return &f.Wrong }),
	enumerate.Flag("machine", "no-machine", func(f *Facts) *bool { return &f.Gone }),
	enumerate.Flag("active", "suspended", func(f *Facts) *bool { return &f.Suspended }),
	enumerate.Enum(Succeeded, func(f *Facts) *Last { return &f.Last }),
	enumerate.Flag("not-due", "due", func(f *Facts) *bool { return &f.Due }),
	enumerate.Enum(Foreign, func(f *Facts) *Tracker { return &f.Tracker }),
	enumerate.Flag("name-free", "name-taken", func(f *Facts) *bool { return &f.Taken }),
	enumerate.Flag("in-time", "overdue", func(f *Facts) *bool { return &f.Overdue }),
}

var oldAxes = []enumerate.Axis[Old]{
	enumerate.Flag("readable", "wrong", func(o *Old) *bool { return &o.Wrong }),
	enumerate.Enum(Leaving, func(o *Old) *Worker { return &o.Worker }),
	enumerate.Flag("at-rest", "going-on", func(o *Old) *bool { return &o.GoingOn }),
	enumerate.Flag("all-kept", "surplus", func(o *Old) *bool { return &o.Surplus }),
	enumerate.Flag("no-files", "files", func(o *Old) *bool { return &o.Files }),
	enumerate.Flag("not-yet", "again", func(o *Old) *bool { return &o.Again }),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# wrong machine suspended last due tracker taken overdue -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string { return enumerate.Line(Decide(f)) })+
		"\n# wrong worker going-on surplus files again -> state [actions]\n"+
		enumerate.Table(oldAxes, func(o Old) string { return enumerate.Line(DecideRemoval(o)) }))
}

func TestEveryRuleIsUsed(t *testing.T) {
	enumerate.Rules(t, axes, rules)
	enumerate.Rules(t, oldAxes, removals)
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		if p.Does(Make) && (!f.Due || f.Wrong || f.Gone || f.Suspended || f.Taken || f.Last == GoingOn || f.Tracker == Foreign || f.Tracker == Missing && !p.Does(Track)) {
			t.Errorf("something is made that should not be: %+v -> %+v", f, p)
		}
		if p.Does(Track) && f.Tracker != Missing {
			t.Errorf("a tracker is made that is there: %+v -> %+v", f, p)
		}
		if state.OfSchedule(p.State).UpToDate && !f.Suspended && f.Last != GoingOn && !f.Due && (f.Overdue || f.Last == Failed) {
			t.Errorf("it says that all is well: %+v -> %+v", f, p)
		}
	})
	enumerate.Every(oldAxes, func(o Old) {
		p := DecideRemoval(o)
		if p.Does(Delete) && (o.Files || !o.Surplus || o.GoingOn || o.Worker != NoWorker) {
			t.Errorf("an object is deleted whose files are there: %+v -> %+v", o, p)
		}
		if p.Does(Forget) && o.Worker != Done {
			t.Errorf("a backup is forgotten whose files may be there: %+v -> %+v", o, p)
		}
		if p.Does(Remove) && (o.Wrong || o.GoingOn || !o.Surplus || o.Worker != NoWorker) {
			t.Errorf("files are removed that may be wanted: %+v -> %+v", o, p)
		}
	})
}
