// Package agent asks the guest agent: about the guest's system, to run the commands of probes, and to freeze filesystems. What an agent answers
// is bounded, because the guest is not trusted.
package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-vm/berth/internal/launcher/guest"
)

// Agent asks the guest agent of a guest.
type Agent struct{ Guest guest.Guest }

// Ping asks the agent for an answer.
func (r Agent) Ping() error { return r.Guest.AskAgent("guest-ping", nil, nil) }

// Exec runs a command in the guest and waits for its end or ctx's.
func (r Agent) Exec(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return errors.New("the probe has no command")
	}
	var started struct {
		PID int `json:"pid"`
	}
	if err := r.Guest.AskAgent("guest-exec", map[string]any{"path": command[0], "arg": command[1:]}, &started); err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var now struct {
			Exited   bool `json:"exited"`
			ExitCode int  `json:"exitcode"`
		}
		if err := r.Guest.AskAgent("guest-exec-status", map[string]int{"pid": started.PID}, &now); err != nil {
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
