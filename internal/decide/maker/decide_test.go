package maker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

func names[E ~int](set func(*Facts, E), names ...string) enumerate.Axis[Facts] {
	return enumerate.Axis[Facts]{Count: len(names), Set: func(f *Facts, i int) string { set(f, E(i)); return names[i] }}
}

var axes = []enumerate.Axis[Facts]{
	names(func(f *Facts, w Wish) { f.Wish = w }, "wanted", "removed", "leaving"),
	names(func(f *Facts, r Record) { f.Record = r }, "NoRecord", "Blank", "Asked", "Made", "Gone"),
	names(func(f *Facts, p Pod) { f.Pod = p }, "NoPod", "Starting", "Up", "Ended", "Closing", "Ending"),
	names(func(f *Facts, i int) { f.Held = i == 1 }, "free", "held"),
	names(func(f *Facts, i int) { f.Changed = i == 1 }, "same", "changed"),
	names(func(f *Facts, i int) { f.KeysDue = i == 1 }, "keys", "keys-due"),
	names(func(f *Facts, i int) { f.Abandoned = i == 1 }, "kept", "abandoned"),
}

func TestTable(t *testing.T) {
	golden.Equal(t, "testdata/decisions.txt", "# wish record pod guest container keys owner -> state [actions]\n"+
		enumerate.Table(axes, func(f Facts) string { p := Decide(f); return fmt.Sprintf("%s %v", p.State, p.Do) }))
}

func TestInvariants(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		used[p.Rule] = true
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if p.Rule == "" {
			fail("no rule")
		}
		if p.State != "" && state.OfMachine(p.State).Message == "" {
			fail("no row for the state")
		}
		may := f.Record == Asked || f.Record == Made
		if does(Forget) && may && !f.Abandoned {
			fail("a volume is forgotten that may exist")
		}
		if does(Forget) && f.Pod != NoPod {
			fail("a pod is forgotten")
		}
		if (does(AskToDelete) || does(Forget) && f.Record != Gone) && (f.Wish == Wanted || f.Held) {
			fail("a volume is deleted that somebody has or wants")
		}
		if does(AskToMake) && (f.Wish != Wanted || f.Pod != Up || !may && !does(NoteAsking)) {
			fail("a volume is made that nobody wants, or that nothing would remember")
		}
		if does(StopPod) && f.Held && f.Pod != Ended && f.Record != Gone {
			fail("a pod is stopped that a guest may depend on")
		}
		if does(StopPod) && f.Wish != Wanted && may && !f.Abandoned && f.Pod != Ended {
			fail("a pod is stopped before it deleted its volume")
		}
		if p.State == state.VolumeMade && f.Record != Made {
			fail("made without an answer")
		}
		if does(StartPod) && (f.Pod != NoPod || f.KeysDue) {
			fail("a second pod, or one without keys")
		}
	})
	for _, r := range rules {
		if !used[r.name] {
			t.Errorf("no situation leads to rule %q", r.name)
		}
	}
}
