package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/berth-vm/berth/internal/launch"
)

// verbs are those that the launcher of this pod carries out when it is asked on its socket.
var verbs = []string{
	launch.PauseVerb, launch.UnpauseVerb, launch.OSInfoVerb, launch.FilesystemsVerb, launch.UsersVerb, launch.ForwardVerb, launch.VNCVerb,
	launch.ResetVerb, launch.SoftRebootVerb, launch.FSFreezeVerb, launch.FSThawVerb,
}

// verb has the launcher of this pod carry a verb out, prints its answer, and connects standard input and output with what
// follows. What a verb needs is the first line of the input.
func verb(name string) error {
	conn, err := net.Dial("unix", launch.VerbSocket)
	if err != nil {
		return fmt.Errorf("the guest does not run: %w", err)
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	line := name
	if launch.NeedsWords(name) {
		what, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("read what to %s: %w", name, err)
		}
		line += " " + strings.TrimSpace(what)
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return fmt.Errorf("ask the launcher to %s: %w", name, err)
	}
	if name == launch.ForwardVerb || name == launch.VNCVerb {
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
