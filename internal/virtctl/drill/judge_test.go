package drill

import (
	"testing"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[facts]{
	enumerate.Named(func(f *facts) *Copy { return &f.Copy }, "starting", "running", "ended", "removed"),
	enumerate.Named(func(f *facts) *Disks { return &f.Disks }, "filling", "full", "bad"),
	enumerate.Flag("not-up", "up", func(f *facts) *bool { return &f.Up }),
	enumerate.Flag("in-time", "late", func(f *facts) *bool { return &f.Late }),
	enumerate.Flag("whole", "boot-only", func(f *facts) *bool { return &f.BootOnly }),
}

// TestJudge: what every combination of facts leads to.
func TestJudge(t *testing.T) {
	used := map[string]bool{}
	golden.Equal(t, "testdata/judgements.txt", "# copy disks up time asked -> rule: result\n"+enumerate.Table(axes, func(f facts) string {
		r := judge(f)
		used[r.name] = true
		return r.name + ": " + string(r.then)
	}))
	for _, r := range rules {
		if !used[r.name] {
			t.Errorf("nothing leads to %q", r.name)
		}
	}
}

// TestNeverPassedWithoutProof: no drill passes that did not see its sign, or, unless the user says so, full disks; and each has an end.
func TestNeverPassedWithoutProof(t *testing.T) {
	enumerate.Every(axes, func(f facts) {
		got := judge(f).then
		if got == Passed && (!f.Up || f.Disks == Bad || f.Disks == Filling && !f.BootOnly || f.Copy == Removed) {
			t.Errorf("%+v passes", f)
		}
		if f.Late && got == Waiting {
			t.Errorf("%+v waits on", f)
		}
	})
}
