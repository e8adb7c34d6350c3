package guest

import (
	"errors"
	"testing"
)

// TestPauseIsFixed: while a guest is sent it stays paused, or not; one that is told to stop meanwhile continues when it stays.
func TestPauseIsFixed(t *testing.T) {
	stopped := false
	p := &Pauser{suspend: func() error { stopped = true; return nil }, resume: func() error { stopped = false; return nil }}
	if p.Fix() {
		t.Error("a guest that runs is said to be paused")
	}
	if err := p.Pause(); !errors.Is(err, errMoving) || stopped {
		t.Errorf("it is paused on the way: %v", err)
	}
	p.Release()
	if err := p.Pause(); err != nil || !p.Fix() {
		t.Fatalf("it is not paused: %v", err)
	}
	if err := p.Unpause(); !errors.Is(err, errMoving) || !stopped {
		t.Errorf("it goes on on the way: %v", err)
	}
	if p.End(); !stopped {
		t.Error("one that is told to stop goes on on the way")
	}
	if p.Release(); stopped || p.Paused() {
		t.Error("one that is told to stop stays paused")
	}
}
