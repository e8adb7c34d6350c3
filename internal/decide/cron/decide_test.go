package cron

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

func flagAxis(set func(*Facts, bool)) enumerate.Axis[Facts] {
	return enumerate.Axis[Facts]{Count: 2, Set: func(f *Facts, i int) string { set(f, i == 1); return fmt.Sprint(i == 1) }}
}

var axes = []enumerate.Axis[Facts]{
	{Count: int(Ending) + 1, Set: func(f *Facts, i int) string { f.Poll = Poll(i); return f.Poll.String() }},
	flagAxis(func(f *Facts, b bool) { f.PollDue = b }),
	flagAxis(func(f *Facts, b bool) { f.Noted = b }),
	flagAxis(func(f *Facts, b bool) { f.Unreadable = b }),
	flagAxis(func(f *Facts, b bool) { f.Taken = b }),
	{Count: int(Ready) + 1, Set: func(f *Facts, i int) string { f.Import = Import(i); return f.Import.String() }},
	flagAxis(func(f *Facts, b bool) { f.Switched = b }),
	flagAxis(func(f *Facts, b bool) { f.Surplus = b }),
}

// TestDecisionTable compares the whole behaviour with a file that a person can read.
func TestDecisionTable(t *testing.T) {
	got := "# poll poll-due noted unreadable taken import switched surplus -> says [actions]; a|b is either, * is any.\n" +
		enumerate.Table(axes, func(f Facts) string {
			p := Decide(f)
			return fmt.Sprintf("%s %v", p.Say, p.Do)
		})
	golden.Equal(t, "testdata/decisions.txt", got)
}

func TestEveryRuleIsAlive(t *testing.T) {
	used := map[string]bool{}
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		if len(p.Rules) != 2 {
			t.Errorf("%+v has rules %v", f, p.Rules)
		}
		for _, name := range p.Rules {
			used[name] = true
		}
	})
	for _, r := range append(slices.Clone(polls), imports...) {
		if !used[r.name] {
			t.Errorf("no situation leads to rule %q", r.name)
		}
	}
}

func TestInvariants(t *testing.T) {
	enumerate.Every(axes, func(f Facts) {
		p := Decide(f)
		does := func(a Action) bool { return slices.Contains(p.Do, a) }
		fail := func(why string) { t.Errorf("%s: %+v -> %+v", why, f, p) }
		if does(Switch) && f.Import != Ready {
			fail("switched to what is not ready")
		}
		if does(Collect) && (f.Import != Ready || !f.Switched) {
			fail("the old imports go before the new one is in use")
		}
		if does(TakeSnapshot) && f.Import != Imported {
			fail("a snapshot of what is not there, or again")
		}
		if does(EndPoll) && !f.Noted {
			fail("an answer is lost")
		}
		if does(StartPoll) && f.Poll != NoPoll {
			fail("two questions at once")
		}
		if (does(CreateImport) || does(TakeSnapshot) || does(Switch) || does(Collect)) && (f.Taken || f.Unreadable) {
			fail("somebody else's name is touched")
		}
	})
}
