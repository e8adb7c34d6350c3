package launcher

import (
	"errors"
	"fmt"
	"sync"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// pauser stops the guest's processors because a person said so, and keeps what goes on by itself from letting them go on.
type pauser struct {
	mu      sync.Mutex
	paused  bool
	held    bool // as well or instead: a disk of the guest's will not be completed
	fixed   bool // the guest is being sent to another launcher, which was told whether it is paused
	ending  bool // the guest is to stop, so it is not to stay paused
	suspend func() error
	resume  func() error
}

var errPaused = errors.New("the guest is to stand still: a person has paused it, or one of its disks will not be completed")

// The words clients know.
var (
	errAlreadyPaused = errors.New("VMI is already paused")
	errNotPaused     = errors.New("VMI is not paused")
)

var errMoving = errors.New("the guest is being moved to another node; try again when it is there")

// fix keeps the guest paused or not paused until release, and returns which.
func (p *pauser) fix() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fixed = true
	return p.paused
}

// release undoes fix, for a guest that was not sent.
func (p *pauser) release() {
	p.mu.Lock()
	p.fixed = false
	ending := p.ending
	p.mu.Unlock()
	if ending {
		_ = p.unpause()
	}
}

// end lets a paused guest go on for its end, now or, if it is being sent, as soon as it stays here.
func (p *pauser) end() {
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	_ = p.unpause()
}

// pause stops the guest.
func (p *pauser) pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.fixed:
		return errMoving
	case p.paused:
		return errAlreadyPaused
	}
	if !p.held {
		if err := p.suspend(); err != nil {
			return fmt.Errorf("pause the guest: %w", err)
		}
	}
	p.paused = true
	return nil
}

// unpause lets it go on.
func (p *pauser) unpause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.fixed:
		return errMoving
	case !p.paused:
		return errNotPaused
	}
	if !p.held {
		if err := p.resume(); err != nil {
			return fmt.Errorf("let the guest go on: %w", err)
		}
	}
	p.paused = false
	return nil
}

// hold stops the guest, or lets it go on, because of its disks. A person's word counts besides.
func (p *pauser) hold(stop bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == stop {
		return nil
	}
	change := p.resume
	if stop {
		change = p.suspend
	}
	if !p.paused {
		if err := change(); err != nil {
			return fmt.Errorf("stop the guest or let it go on: %w", err)
		}
	}
	p.held = stop
	return nil
}

// goOn lets a guest go on that stopped by itself, but none that a person has paused.
func (p *pauser) goOn() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused || p.held {
		return errPaused
	}
	return p.resume()
}

func (p *pauser) is() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused
}

func (r *running) pause() error {
	if why := launcherapi.Pausable(r.spec); why != "" {
		return errors.New(why)
	}
	return r.pauser.pause()
}

func (r *running) unpause() error { return r.pauser.unpause() }
