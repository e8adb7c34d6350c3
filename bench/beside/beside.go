// Package beside runs the launcher on this machine as it runs in its pod (the same program, user and libvirt, in a network
// namespace of its own), for benches that hold it against plain QEMU. It needs root. It knows nothing of what is measured.
package beside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// User is the user ID that a launcher runs as.
const User = "107"

// The two ends of the link between the servers of this machine and the launcher.
const (
	HostAddress = "10.213.77.1"
	podAddress  = "10.213.77.2"
)

// Namespace is a network namespace with a link to this one.
type Namespace struct{ name string }

// NewNamespace makes one; there can be one at a time.
func NewNamespace(ctx context.Context) (*Namespace, error) {
	n := &Namespace{fmt.Sprintf("berth-bench-%d", os.Getpid())}
	for _, args := range [][]string{
		{"ip", "netns", "add", n.name},
		{"ip", "link", "add", "bbhost", "type", "veth", "peer", "name", "bbpod", "netns", n.name},
		{"ip", "addr", "add", HostAddress + "/30", "dev", "bbhost"},
		{"ip", "link", "set", "bbhost", "up"},
		{"ip", "-n", n.name, "addr", "add", podAddress + "/30", "dev", "bbpod"},
		{"ip", "-n", n.name, "link", "set", "bbpod", "up"},
		{"ip", "-n", n.name, "link", "set", "lo", "up"},
	} {
		if err := Command(ctx, args...); err != nil {
			n.Close()
			return nil, err
		}
	}
	return n, nil
}

// Close removes it.
func (n *Namespace) Close() {
	_ = exec.Command("ip", "link", "del", "bbhost").Run()
	_ = exec.Command("ip", "netns", "del", n.name).Run()
}

// Plain returns a command that runs QEMU manually, in the same namespace and as the same user.
func (n *Namespace) Plain(args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.name, "setpriv", "--reuid=" + User, "--regid=" + User, "--clear-groups", "qemu-system-x86_64"}, args...)...)
}

// Command runs a program to its end.
func Command(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Write writes files below a directory that every user can read.
func Write(dir string, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// Room makes a directory below dir that the launcher's user can reach.
func Room(dir, name string) (string, error) {
	made, err := os.MkdirTemp(dir, name+"-")
	if err != nil {
		return "", err
	}
	return made, os.Chmod(made, 0o755)
}

// Eventually tries until it works, for at most two minutes.
func Eventually(ctx context.Context, what string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
}
