package machine

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/state"
)

// TestPaused: the launcher says whether its guest is paused. Until it does, what was certain last counts, and it is
// asked again soon: what is said changes once for each thing that is asked.
func TestPaused(t *testing.T) {
	for _, c := range []struct {
		name  string
		wish  string
		still bool // it is to start paused
		says  launcherapi.Returns
		err   error
		want  bool
		again time.Duration
	}{
		{name: "never asked for", says: launcherapi.Returns{Paused: true}, again: report.ReturnsAgain},
		{name: "about to be paused", wish: "pausing", again: report.AnswerAfter},
		{name: "about to be paused, no answer yet", wish: "pausing", err: probe.ErrNoAnswerYet, again: report.AnswerAfter},
		{name: "paused, and nobody wrote it down", wish: "pausing", says: launcherapi.Returns{Paused: true}, want: true, again: report.ReturnsAgain},
		{name: "paused", wish: "true", says: launcherapi.Returns{Paused: true}, want: true, again: report.ReturnsAgain},
		{name: "paused, an answer from before", wish: "true", again: report.AnswerAfter},
		{name: "paused, no answer yet", wish: "true", err: probe.ErrNoAnswerYet, want: true, again: report.AnswerAfter},
		{name: "paused, no answer", wish: "true", err: errors.New("away"), want: true, again: report.AnswerAfter},
		{name: "about to go on", wish: "unpausing", says: launcherapi.Returns{Paused: true}, want: true, again: report.AnswerAfter},
		{name: "about to go on, no answer yet", wish: "unpausing", err: probe.ErrNoAnswerYet, want: true, again: report.AnswerAfter},
		{name: "started paused", still: true, says: launcherapi.Returns{Paused: true}, want: true, again: report.ReturnsAgain},
		{name: "started paused, no answer yet", still: true, err: probe.ErrNoAnswerYet, want: true, again: report.AnswerAfter},
		{name: "started paused, and goes on", still: true, wish: "false", again: report.DescribeAgain},
		{name: "goes on", wish: "false", again: report.DescribeAgain},
		{name: "goes on, an answer from before", wish: "false", says: launcherapi.Returns{Paused: true}, want: true, again: report.AnswerAfter},
	} {
		s := upOnly(kubevirt.VirtualMachineInstanceStatus{})
		if c.still {
			s.Object.Spec.StartStrategy = new(kubevirt.StartPaused)
		}
		if c.wish != "" {
			s.Object.Annotations = map[string]string{kubevirt.AnnPaused: c.wish}
		}
		r := &observed.Reader{Ask: func(*corev1.Pod) (launcherapi.Returns, error) { return c.says, c.err }}
		r.AskGuest(t.Context(), s)
		if report.Paused(s) != c.want || report.LookAgain(s) != c.again {
			t.Errorf("%s: paused %t, again in %s", c.name, report.Paused(s), report.LookAgain(s))
		}
		row, conditions := report.Row(s, state.GuestRunning), report.PausedCondition(s)
		if got := row.Reason == state.PausedByUser && row.Status == kubevirt.StatusPaused && row.Instance == kubevirt.PhaseRunning; got != c.want {
			t.Errorf("%s is said: %+v", c.name, row)
		}
		if len(conditions) == 1 != c.want || c.want && (conditions[0].Type != "Paused" || conditions[0].Reason != "PausedByUser") {
			t.Errorf("%s has conditions %+v", c.name, conditions)
		}
	}
}
