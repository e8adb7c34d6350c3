package report

import (
	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/state"
)

// pauseAsked returns whether pausing or unpausing was requested last, at the start if not since; empty if neither ever was, and
// then the launcher is not asked.
func pauseAsked(s *observed.Instance) string {
	asked, since := s.Object.Annotations[kubevirt.AnnPaused]
	if !since && s.Object.Spec.StartsPaused() {
		return kubevirt.PausedTrue
	}
	return asked
}

// Paused reports whether the guest's processors are stopped because a user asked for it. The launcher knows; until it answers, what was certain last counts.
func Paused(s *observed.Instance) bool {
	switch {
	case pauseAsked(s) == "" || observed.Situation(s.Launcher) != machine.Up:
		return false
	case s.Heard:
		return s.Returns.Paused
	}
	return pauseAsked(s) == kubevirt.PausedTrue || pauseAsked(s) == kubevirt.Unpausing
}

// pauseUnsettled: the launcher does not say what was asked for. It may have been asked just now, or said so before that.
func pauseUnsettled(s *observed.Instance) bool {
	wanted := pauseAsked(s) == kubevirt.PausedTrue || pauseAsked(s) == kubevirt.Pausing
	return pauseAsked(s) != "" && s.Returns.Paused != wanted
}

// PausedCondition returns the condition Paused; none for a guest that is not paused.
func PausedCondition(s *observed.Instance) []kubevirt.Condition {
	if !Paused(s) {
		return nil
	}
	return []kubevirt.Condition{{
		Type: "Paused", Status: corev1.ConditionTrue, Reason: string(state.PausedByUser), Message: "VMI was paused by user",
	}}
}
