package guest

import (
	"errors"
	"fmt"
	"sync"
)

// Pauser pauses and resumes the guest. A guest that a user has paused is resumed by a user only, not by what looks after its disks.
type Pauser struct {
	mu      sync.Mutex
	paused  bool // by a user
	held    bool // because a disk will not be completed; a user may have paused the guest as well
	fixed   bool // the guest is being moved, and its target was told whether it is paused
	ending  bool // the guest is told to shut down, which it does not hear while it is paused
	suspend func() error
	resume  func() error
}

// NewPauser returns the pauser of a guest.
func NewPauser(g Guest) *Pauser {
	p := PauserOf(func() error { return g.Libvirt.Virt.DomainSuspend(g.Domain) }, func() error { return g.Libvirt.Virt.DomainResume(g.Domain) })
	p.paused = g.Paused
	return p
}

// PauserOf returns the pauser of a guest that these functions pause and resume.
func PauserOf(suspend, resume func() error) *Pauser { return &Pauser{suspend: suspend, resume: resume} }

var errPaused = errors.New("the guest stays paused: a person has paused it, or one of its disks will not be completed")

// The messages that clients know from KubeVirt.
var (
	ErrAlreadyPaused = errors.New("VMI is already paused")
	ErrNotPaused     = errors.New("VMI is not paused")
)

var errMoving = errors.New("the guest is being moved to another node; try again when it is there")

// Fix refuses to pause or resume the guest until release, and returns whether a user has paused it.
func (p *Pauser) Fix() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fixed = true
	return p.paused
}

// Release ends fix, for a guest that was not moved.
func (p *Pauser) Release() {
	p.mu.Lock()
	p.fixed = false
	ending := p.ending
	p.mu.Unlock()
	if ending {
		_ = p.Unpause()
	}
}

// End resumes a guest that is told to shut down: now, or, if it is being moved, when the move has failed.
func (p *Pauser) End() {
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	_ = p.Unpause()
}

// Pause pauses the guest for a user.
func (p *Pauser) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.fixed:
		return errMoving
	case p.paused:
		return ErrAlreadyPaused
	}
	if !p.held {
		if err := p.suspend(); err != nil {
			return fmt.Errorf("pause the guest: %w", err)
		}
	}
	p.paused = true
	return nil
}

// Unpause ends the pause of a user.
func (p *Pauser) Unpause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.fixed:
		return errMoving
	case !p.paused:
		return ErrNotPaused
	}
	if !p.held {
		if err := p.resume(); err != nil {
			return fmt.Errorf("let the guest go on: %w", err)
		}
	}
	p.paused = false
	return nil
}

// Hold pauses the guest because of its disks, or ends that pause. A guest that a user has paused stays paused.
func (p *Pauser) Hold(stop bool) error {
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

// ResumeStopped resumes a guest that QEMU has paused. It returns an error for a guest that is paused for another reason.
func (p *Pauser) ResumeStopped() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused || p.held {
		return errPaused
	}
	return p.resume()
}

// Paused reports whether a user has paused the guest.
func (p *Pauser) Paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused
}

// Alone calls do while the guest is neither paused nor resumed by another caller. It returns an error if the guest is being moved.
func (p *Pauser) Alone(do func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fixed {
		return errMoving
	}
	return do()
}
