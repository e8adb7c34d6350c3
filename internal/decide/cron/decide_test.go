package cron

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var axes = []enumerate.Axis[Facts]{
	enumerate.Enum(Ending, func(f *Facts) *Poll { return &f.Poll }),
	enumerate.Flag("false", "true", func(f *Facts) *bool { return &f.PollDue }),
	enumerate.Flag("false", "true", func(f *Facts) *bool { return &f.Noted }),
	enumerate.Flag("false", "true", func(f *Facts) *bool { return &f.Unreadable }),
	enumerate.Flag("false", "true", func(f *Facts) *bool { return &f.Taken }),
	enumerate.Enum(Ready, func(f *Facts) *Import { return &f.Import }),
	enumerate.Flag("false", "true", func(f *Facts) *bool { return &f.Switched }),
	enumerate.Flag("false", "true", func(f *Facts) *bool { return &f.Surplus }),
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
	enumerate.Rules(t, axes, polls)
	enumerate.Rules(t, axes, imports)
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
