package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// verbs are the verbs that the launcher of this pod carries out when it is asked on its socket.
var verbs = []string{
	launcherapi.PauseVerb, launcherapi.UnpauseVerb, launcherapi.OSInfoVerb, launcherapi.FilesystemsVerb, launcherapi.UsersVerb, launcherapi.ForwardVerb, launcherapi.VNCVerb,
	launcherapi.ScreenshotVerb, launcherapi.ResetVerb, launcherapi.SoftRebootVerb, launcherapi.FSFreezeVerb, launcherapi.FSThawVerb, launcherapi.BackupVerb,
}

// verb has the launcher of this pod carry a verb out, prints its answer, and connects standard input and output with what
// follows. What a verb needs is the first line of the input.
func verb(name string) error {
	conn, err := net.Dial("unix", launcherapi.VerbSocket)
	if err != nil {
		return fmt.Errorf("the guest does not run: %w", err)
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	line := name
	if launcherapi.NeedsWords(name) {
		what, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("read what to %s: %w", name, err)
		}
		line += " " + strings.TrimSpace(what)
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return fmt.Errorf("ask the launcher to %s: %w", name, err)
	}
	if name == launcherapi.ForwardVerb || name == launcherapi.VNCVerb {
		go func() {
			_, _ = io.Copy(conn, in)
			_ = conn.(*net.UnixConn).CloseWrite()
		}()
	}
	if _, err := io.Copy(os.Stdout, conn); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("ask the launcher to %s: %w", name, err)
	}
	return nil
}
