package machine

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/probe"
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
		{name: "never asked for", says: launcherapi.Returns{Paused: true}, again: returnsAgain},
		{name: "about to be paused", wish: "pausing", again: answerAfter},
		{name: "about to be paused, no answer yet", wish: "pausing", err: probe.ErrNoAnswerYet, again: answerAfter},
		{name: "paused, and nobody wrote it down", wish: "pausing", says: launcherapi.Returns{Paused: true}, want: true, again: returnsAgain},
		{name: "paused", wish: "true", says: launcherapi.Returns{Paused: true}, want: true, again: returnsAgain},
		{name: "paused, an answer from before", wish: "true", again: answerAfter},
		{name: "paused, no answer yet", wish: "true", err: probe.ErrNoAnswerYet, want: true, again: answerAfter},
		{name: "paused, no answer", wish: "true", err: errors.New("away"), want: true, again: answerAfter},
		{name: "about to go on", wish: "unpausing", says: launcherapi.Returns{Paused: true}, want: true, again: answerAfter},
		{name: "about to go on, no answer yet", wish: "unpausing", err: probe.ErrNoAnswerYet, want: true, again: answerAfter},
		{name: "started paused", still: true, says: launcherapi.Returns{Paused: true}, want: true, again: returnsAgain},
		{name: "started paused, no answer yet", still: true, err: probe.ErrNoAnswerYet, want: true, again: answerAfter},
		{name: "started paused, and goes on", still: true, wish: "false", again: describeAgain},
		{name: "goes on", wish: "false", again: describeAgain},
		{name: "goes on, an answer from before", wish: "false", says: launcherapi.Returns{Paused: true}, want: true, again: answerAfter},
	} {
		s := upOnly(kubevirt.VirtualMachineInstanceStatus{})
		if c.still {
			s.instance.Spec.StartStrategy = new(kubevirt.StartPaused)
		}
		if c.wish != "" {
			s.instance.Annotations = map[string]string{kubevirt.AnnPaused: c.wish}
		}
		r := &Reconciler{ask: func(*corev1.Pod) (launcherapi.Returns, error) { return c.says, c.err }}
		r.observeWaits(t.Context(), s)
		if s.paused() != c.want || s.lookAgain() != c.again {
			t.Errorf("%s: paused %t, again in %s", c.name, s.paused(), s.lookAgain())
		}
		row, conditions := s.row(state.GuestRunning), s.pausedCondition()
		if got := row.Reason == state.PausedByUser && row.Status == kubevirt.StatusPaused && row.Instance == kubevirt.PhaseRunning; got != c.want {
			t.Errorf("%s is said: %+v", c.name, row)
		}
		if len(conditions) == 1 != c.want || c.want && (conditions[0].Type != "Paused" || conditions[0].Reason != "PausedByUser") {
			t.Errorf("%s has conditions %+v", c.name, conditions)
		}
	}
}
