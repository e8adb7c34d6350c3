package launcher

import (
	"context"
	"errors"
	"fmt"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// The probes of a machine that Ask carries out.
const (
	ReadinessProbe = "readiness"
	LivenessProbe  = "liveness"
)

var errNotRunning = errors.New("the guest does not run")

// Ask carries out a probe that needs the guest agent. It returns nil if the guest is well.
func (l *Launcher) Ask(ctx context.Context, which string) error {
	r := l.ready.Load()
	if r == nil {
		return errNotRunning
	}
	var p *kubevirt.Probe
	switch which {
	case ReadinessProbe:
		p = r.Guest.Machine.Spec.ReadinessProbe
	case LivenessProbe:
		p = r.Guest.Machine.Spec.LivenessProbe
	}
	switch {
	case p != nil && p.GuestAgentPing != nil:
		return r.Agent.Ping()
	case p != nil && p.Exec != nil:
		return r.Agent.Exec(ctx, p.Exec.Command)
	}
	return fmt.Errorf("the machine has no %s probe that asks its guest agent", which)
}
