package containervolume

import (
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	enumerate.Named(func(f *Facts) *Wish { return &f.Wish }, "wanted", "removed", "leaving"),
	enumerate.Named(func(f *Facts) *Record { return &f.Record }, "NoRecord", "Blank", "Asked", "Made", "Gone"),
	enumerate.Named(func(f *Facts) *Pod { return &f.Pod }, "NoPod", "Starting", "Up", "Ended", "Closing", "Ending"),
	enumerate.Flag("free", "held", func(f *Facts) *bool { return &f.Held }),
	enumerate.Flag("same", "changed", func(f *Facts) *bool { return &f.Changed }),
	enumerate.Flag("keys", "keys-due", func(f *Facts) *bool { return &f.KeysDue }),
	enumerate.Flag("kept", "abandoned", func(f *Facts) *bool { return &f.Abandoned }),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# wish record pod guest container keys owner -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string { return enumerate.Line(Decide(f)) }))
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if p.Rule == "" {
			fail("no rule")
		}
		if p.State != "" && state.OfMachine(p.State).Message == "" {
			fail("no row for the state")
		}
		may := f.Record == Asked || f.Record == Made
		if p.Does(Forget) && may && !f.Abandoned {
			fail("a volume is forgotten that may exist")
		}
		if p.Does(Forget) && f.Pod != NoPod {
			fail("a pod is forgotten")
		}
		if (p.Does(AskToDelete) || p.Does(Forget) && f.Record != Gone) && (f.Wish == Wanted || f.Held) {
			fail("a volume is deleted that somebody has or wants")
		}
		if p.Does(AskToMake) && (f.Wish != Wanted || f.Pod != Up || !may && !p.Does(NoteAsking)) {
			fail("a volume is made that nobody wants, or that nothing would remember")
		}
		if p.Does(StopPod) && f.Held && f.Pod != Ended && f.Record != Gone {
			fail("a pod is stopped that a guest may depend on")
		}
		if p.Does(StopPod) && f.Wish != Wanted && may && !f.Abandoned && f.Pod != Ended {
			fail("a pod is stopped before it deleted its volume")
		}
		if p.State == state.VolumeMade && f.Record != Made {
			fail("made without an answer")
		}
		if p.Does(StartPod) && (f.Pod != NoPod || f.KeysDue) {
			fail("a second pod, or one without keys")
		}
	})
	enumerate.Rules(t, axes, rules)
}
