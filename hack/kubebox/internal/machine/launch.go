// Package machine runs one machine of the cluster: it makes the namespaces, and inside them an init process that mounts what the
// machine needs and keeps its components running. When the init ends, for whatever reason, the kernel ends every process of
// the machine and takes its mounts and network with it. The package does not know what the components are for.
package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/berth-vm/berth/hack/kubebox/internal/plan"
)

// Applet is the name under which main calls Init.
const Applet = "machine-init"

// Launch starts the machine. wire plugs the machine, by the process id of its init, into the network; nothing runs in the
// machine before wire has returned, and nothing is left of it when Launch fails.
func Launch(m plan.Machine, l plan.Layout, wire func(pid int) error) error {
	spec, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode machine %s: %w", m.Name, err)
	}
	log := l.Log(m.Name, "init")
	for _, dir := range []string{filepath.Dir(log), filepath.Dir(l.Spec(m.Name))} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make directory of machine %s: %w", m.Name, err)
		}
	}
	if err := os.WriteFile(l.Spec(m.Name), spec, 0o600); err != nil {
		return fmt.Errorf("write specification of machine %s: %w", m.Name, err)
	}
	if err := os.Remove(l.Status(m.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old status of machine %s: %w", m.Name, err)
	}
	out, err := openLog(log)
	if err != nil {
		return err
	}
	defer out.Close()
	return start(m, l, out, wire)
}

func start(m plan.Machine, l plan.Layout, log *os.File, wire func(pid int) error) error {
	gate, open, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer open.Close()
	cmd := exec.Command("/proc/self/exe", Applet, l.Dir, m.Name)
	cmd.Args[0] = "kubebox"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{gate}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	err = cmd.Start()
	gate.Close()
	if err != nil {
		return fmt.Errorf("start machine %s: %w", m.Name, err)
	}
	if err = wire(cmd.Process.Pid); err == nil {
		_, err = open.WriteString("go")
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("start machine %s: %w", m.Name, err)
	}
	// Reap it if it ends while this command runs; after that it belongs to the machine's own init.
	go func() { _ = cmd.Wait() }()
	return nil
}

// maxLog is the size at which a log is started afresh when its component starts.
const maxLog = 32 << 20

func openLog(path string) (*os.File, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return f, nil
}
