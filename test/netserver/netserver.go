// Package netserver starts real storage servers for tests: tgt for iSCSI, nbdkit for NBD, nginx for HTTP, a Ceph cluster of
// one node and a Gluster server of one brick. Each is a process of the test's own, listens at the one address it is given,
// keeps everything in a directory of its own, and ends with the test process, however that ends.
//
// It knows nothing of Kubernetes or of Berth. The programs are Debian's; hack/packages lists them.
package netserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a server that runs.
type process struct {
	cmd  *exec.Cmd
	log  string // the file it writes to
	gone chan struct{}
}

// start runs a server in the foreground. The kernel ends it when this process has ended.
func start(log string, env []string, name string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()
	p := &process{cmd: exec.Command(name, args...), log: log, gone: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the signal comes when the thread ends that started the process, so it must not
		started <- p.cmd.Start()
		if p.cmd.Process != nil {
			_ = p.cmd.Wait()
		}
		close(p.gone)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s (hack/packages names what tests need): %w", name, err)
	}
	return p, nil
}

// stop ends it at once, as a server's machine ends when its power goes.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// await waits until the server is up.
func (p *process) await(what string, up func() error) error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := up()
		if err == nil {
			return nil
		}
		select {
		case <-p.gone:
			return fmt.Errorf("%s ended: %s", what, tail(p.log))
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not come up: %w: %s", what, err, tail(p.log))
		}
	}
}

func tail(file string) string {
	b, _ := os.ReadFile(file)
	return string(bytes.TrimSpace(b[max(0, len(b)-2000):]))
}

// run runs a program to its end; once more if it crashed. The client library of Gluster aborts now and then on a machine that has much
// to do, and what a test tests is not the tool that puts a disk on its server.
func run(env []string, name string, args ...string) (string, error) {
	out, err := runOnce(env, name, args...)
	if crashed(err) {
		return runOnce(env, name, args...)
	}
	return out, err
}

// crashed reports whether a program was ended by a signal of its own making, not by one that was sent because it took too long.
func crashed(err error) bool {
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return false
	}
	status, is := ended.Sys().(syscall.WaitStatus)
	return is && status.Signaled() && slices.Contains([]syscall.Signal{syscall.SIGABRT, syscall.SIGBUS, syscall.SIGSEGV}, status.Signal())
}

func runOnce(env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return strings.TrimSpace(string(out)), nil
}

// FreePort returns a port of the address that no program listens on.
func FreePort(address string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// answers returns an error unless a program listens there.
func answers(address string, port int) error {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(address, strconv.Itoa(port)), time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

// Once starts a server when the first test asks for it and ends it with the last.
type Once[S interface{ Close() }] struct {
	once   sync.Once
	server S
	err    error
}

// Get returns the server, started by the first call.
func (o *Once[S]) Get(start func() (S, error)) (S, error) {
	o.once.Do(func() { o.server, o.err = start() })
	return o.server, o.err
}

// Close ends the server if it was ever started.
func (o *Once[S]) Close() {
	started := true
	o.once.Do(func() { started = false })
	if started && o.err == nil {
		o.server.Close()
	}
}

// copySparse copies a disk without writing its holes.
func copySparse(from, to string) error {
	_, err := run(nil, "cp", "--sparse=always", "--reflink=auto", from, to)
	return err
}
