package agent

import (
	"errors"
	"slices"
	"testing"
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
			q := &Freezer{ask: func(command string) error {
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
