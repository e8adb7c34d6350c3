package main

import (
	"fmt"
	"io"
	"net"
	"os"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// quiet asks the launcher of this pod to freeze or thaw its guest's filesystems, and prints the result.
func quiet(verb string) error {
	conn, err := net.Dial("unix", launcherapi.QuietSocket)
	if err != nil {
		return fmt.Errorf("the guest does not run: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintln(conn, verb); err != nil {
		return fmt.Errorf("ask the launcher to %s: %w", verb, err)
	}
	if _, err := io.Copy(os.Stdout, conn); err != nil {
		return fmt.Errorf("ask the launcher to %s: %w", verb, err)
	}
	return nil
}
