package machine

import (
	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/state"
)

// pauseAsked is which of pausing and unpausing was last asked for, with the start if not since; empty: neither ever was, and the
// launcher is not asked.
func (s *run) pauseAsked() string {
	asked, since := s.instance.Annotations[kubevirt.AnnPaused]
	if !since && s.instance.Spec.StartsPaused() {
		return kubevirt.PausedTrue
	}
	return asked
}

// paused: somebody has stopped the guest's processors. The launcher knows; until it answers, what was certain last counts.
func (s *run) paused() bool {
	switch {
	case s.pauseAsked() == "" || situation(s.launcher) != machine.Up:
		return false
	case s.heard:
		return s.returns.Paused
	}
	return s.pauseAsked() == kubevirt.PausedTrue || s.pauseAsked() == kubevirt.Unpausing
}

// pauseUnsettled: the launcher does not say what was asked for. It may have been asked just now, or said so before that.
func (s *run) pauseUnsettled() bool {
	wanted := s.pauseAsked() == kubevirt.PausedTrue || s.pauseAsked() == kubevirt.Pausing
	return s.pauseAsked() != "" && s.returns.Paused != wanted
}

// pausedCondition is what clients read; there is none of a guest that is not paused.
func (s *run) pausedCondition() []kubevirt.Condition {
	if !s.paused() {
		return nil
	}
	return []kubevirt.Condition{{
		Type: "Paused", Status: corev1.ConditionTrue, Reason: string(state.PausedByUser), Message: "VMI was paused by user",
	}}
}

// pausedCondition of a machine is that of its instance, while the machine says what its instance says.
func (w *whole) pausedCondition(row state.MachineRow) []kubevirt.Condition {
	if row.Reason != state.PausedByUser {
		return nil
	}
	return w.run.pausedCondition()
}
