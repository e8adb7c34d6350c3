package agent

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestQuiet: in whatever order the requests come, the guest is thawed in the end, and the answer says whether it was frozen all the time.
func TestQuiet(t *testing.T) {
	const freeze, thaw = "guest-fsfreeze-freeze", "guest-fsfreeze-thaw"
	held := launcherapi.Quiet{Agent: true, Held: true}
	for _, c := range []struct {
		name  string
		verbs []string // late: the time is over
		fails string
		want  launcherapi.Quiet // the last answer
		asked []string
	}{
		{name: "frozen and thawed", verbs: []string{"freeze", "thaw"}, want: held, asked: []string{freeze, thaw}},
		{name: "the answer got lost", verbs: []string{"freeze", "thaw", "thaw"}, want: held, asked: []string{freeze, thaw, thaw}},
		{name: "frozen twice", verbs: []string{"freeze", "freeze", "thaw"}, want: held, asked: []string{freeze, thaw}},
		{name: "too late", verbs: []string{"freeze", "late", "thaw"}, want: launcherapi.Quiet{Agent: true}, asked: []string{freeze, thaw, thaw}},
		{name: "again after too late", verbs: []string{"freeze", "late", "freeze", "thaw"}, want: held, asked: []string{freeze, thaw, freeze, thaw}},
		{name: "never frozen", verbs: []string{"thaw"}, want: launcherapi.Quiet{Agent: true}},
		{name: "no agent", verbs: []string{"freeze"}, fails: freeze, want: launcherapi.Quiet{Detail: "no agent"}, asked: []string{freeze, thaw}},
		{name: "a person's hold outlives a snapshot", verbs: []string{"hold", "freeze", "thaw"}, want: held, asked: []string{freeze}},
		{name: "a snapshot outlives a person's hold", verbs: []string{"freeze", "hold", "unhold"}, asked: []string{freeze}},
		{name: "both end", verbs: []string{"hold", "freeze", "unhold", "thaw"}, want: held, asked: []string{freeze, thaw}},
		{name: "a person's hold ends", verbs: []string{"hold", "unhold"}, asked: []string{freeze, thaw}},
		{name: "a person's hold is over", verbs: []string{"hold", "late", "freeze", "thaw"}, want: held, asked: []string{freeze, thaw, freeze, thaw}},
		{name: "frozen elsewhere", verbs: []string{"unhold"}, asked: []string{thaw}},
		{name: "reset", verbs: []string{"freeze", "reset", "thaw"}, want: launcherapi.Quiet{Agent: true}, asked: []string{freeze, thaw}},
		{name: "nonsense", verbs: []string{"melt"}, want: launcherapi.Quiet{Detail: `"melt" is neither freeze nor thaw`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked []string
			q := &Freezer{every: time.Hour, ask: func(command string) error {
				asked = append(asked, command)
				if command == c.fails {
					return errors.New("no agent")
				}
				return nil
			}}
			var got launcherapi.Quiet
			for _, v := range c.verbs {
				got = launcherapi.Quiet{}
				switch v {
				case "late":
					q.timer.Stop()
					q.giveUp()
				case "hold":
					_ = q.Hold(time.Hour)
				case "unhold":
					_ = q.Unhold()
				case "reset":
					q.Reset()
				default:
					got = q.Do(v)
				}
			}
			if q.timer != nil {
				q.timer.Stop()
			}
			if got != c.want || !slices.Equal(asked, c.asked) {
				t.Errorf("answer %+v, want %+v; asked %q, want %q", got, c.want, asked, c.asked)
			}
		})
	}
}

// TestThawIsTriedAgain: an agent that does not answer in time may have frozen the guest. It is thawed as soon as the agent answers, after a freeze that
// failed and after a thaw that failed, but not while it is frozen for another reason.
func TestThawIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		refuses func(before int) bool
		verbs   []string
		frozen  bool // in the end
	}{
		"the answer to a freeze is late": {func(before int) bool { return before < 3 }, []string{"freeze"}, false},
		"thaws are not answered":         {func(before int) bool { return before > 0 && before < 4 }, []string{"freeze", "thaw"}, false},
		"frozen again meanwhile":         {func(before int) bool { return before == 1 }, []string{"freeze", "thaw", "freeze"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				frozen, before := false, 0
				q := &Freezer{every: thawEvery, ask: func(command string) error {
					defer func() { before++ }()
					if refused := c.refuses(before); refused && command == "guest-fsfreeze-thaw" {
						return errors.New("no answer in time")
					} else if frozen = command == "guest-fsfreeze-freeze"; refused {
						return errors.New("no answer in time") // but it does it
					}
					return nil
				}}
				for _, v := range c.verbs {
					q.Do(v)
				}
				<-time.After(thawEvery * 10)
				q.mu.Lock()
				defer q.mu.Unlock()
				if frozen != c.frozen {
					t.Errorf("the guest is frozen: %v, after %d commands", frozen, before)
				}
				if q.timer != nil {
					q.timer.Stop()
				}
			})
		})
	}
}
