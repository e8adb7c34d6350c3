package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// backupHook freezes the guest's filesystems for a backup tool, or thaws them after it. A guest that does not run, or that has no agent,
// is backed up as it is: that is no error. One that cannot be frozen although its agent answers is.
func backupHook(which, socket string, out io.Writer) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		_, _ = fmt.Fprintln(out, "the guest does not run: there is nothing to freeze")
		return nil
	}
	defer func() { _ = conn.Close() }()
	verb := launcherapi.FSThawVerb
	if which == launcherapi.PreBackupVerb {
		verb = fmt.Sprintf("%s %d", launcherapi.FSFreezeVerb, int(launcherapi.FreezeFor.Seconds()))
	}
	if _, err := fmt.Fprintln(conn, verb); err != nil {
		return fmt.Errorf("ask the launcher to %s: %w", verb, err)
	}
	var said launcherapi.Said
	if err := json.NewDecoder(conn).Decode(&said); err != nil {
		return fmt.Errorf("read the launcher's answer to %s: %w", verb, err)
	}
	switch {
	case said.NoAgent:
		_, _ = fmt.Fprintln(out, "the guest has no agent that answers: it is backed up as it is")
	case said.Refused != "":
		return errors.New(said.Refused)
	}
	return nil
}
