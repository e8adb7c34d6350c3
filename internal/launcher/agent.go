package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// Which of the machine's probes is asked.
const (
	ReadinessProbe = "readiness"
	LivenessProbe  = "liveness"
)

var errNotRunning = errors.New("the guest does not run")

// Ask carries out a probe that needs the guest agent. No error means that the guest is well.
func (l *Launcher) Ask(ctx context.Context, which string) error {
	r := l.ready.Load()
	if r == nil {
		return errNotRunning
	}
	var p *kubevirt.Probe
	switch which {
	case ReadinessProbe:
		p = r.spec.ReadinessProbe
	case LivenessProbe:
		p = r.spec.LivenessProbe
	}
	switch {
	case p != nil && p.GuestAgentPing != nil:
		return r.agent("guest-ping", nil, nil)
	case p != nil && p.Exec != nil:
		return r.exec(ctx, p.Exec.Command)
	}
	return fmt.Errorf("the machine has no %s probe that asks its guest agent", which)
}

// agent asks the guest agent one thing. libvirt holds the agent's line, so it is asked through libvirt.
func (r *running) agent(command string, arguments, answer any) error {
	text, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return err
	}
	const seconds = 5
	said, err := r.h.Virt.QEMUDomainAgentCommand(r.dom, string(text), seconds, 0)
	if err != nil {
		return fmt.Errorf("ask the guest agent to %s: %w", command, err)
	}
	if answer == nil {
		return nil
	}
	if len(said) == 0 {
		return fmt.Errorf("the guest agent says nothing to %s", command)
	}
	return json.Unmarshal([]byte(said[0]), &struct {
		Return any `json:"return"`
	}{answer})
}

// exec runs a command in the guest and waits for its end or ctx's.
func (r *running) exec(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return errors.New("the probe has no command")
	}
	var started struct {
		PID int `json:"pid"`
	}
	if err := r.agent("guest-exec", map[string]any{"path": command[0], "arg": command[1:]}, &started); err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var now struct {
			Exited   bool `json:"exited"`
			ExitCode int  `json:"exitcode"`
		}
		if err := r.agent("guest-exec-status", map[string]int{"pid": started.PID}, &now); err != nil {
			return err
		}
		switch {
		case now.Exited && now.ExitCode == 0:
			return nil
		case now.Exited:
			return fmt.Errorf("%s ended with %d in the guest", command[0], now.ExitCode)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s has not ended in the guest: %w", command[0], ctx.Err())
		}
	}
}
