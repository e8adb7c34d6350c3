//go:build host

package guest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/images/guest"
)

// built is the folder of the guest's files, made by hack/images before the host tests run.
const built = "../../bin/images/guest"

// machine is a QEMU that runs the guest without KVM.
type machine struct {
	t       *testing.T
	dir     string
	cmd     *exec.Cmd
	in      io.Writer
	lines   chan string // what the guest says, without "berth-guest: "
	control *control
	console bytes.Buffer
}

// boot starts QEMU. Its monitor is at dir/qmp.
func boot(t *testing.T, args ...string) *machine {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	m := &machine{t: t, dir: t.TempDir(), lines: make(chan string, 1000)}
	monitor := filepath.Join(m.dir, "qmp")
	m.cmd = exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{
		"-machine", "q35,accel=tcg", "-m", "256", "-display", "none", "-nodefaults", "-no-reboot", "-serial", "stdio",
		"-qmp", "unix:" + monitor + ",server=on,wait=off",
	}, args...)...)
	in, err := m.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	m.in, m.cmd.Stderr = in, &stderr
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(m.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			m.console.WriteString(lines.Text() + "\n")
			if line, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "berth-guest: "); ok {
				m.lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-read
		_ = m.cmd.Wait()
		if t.Failed() {
			t.Logf("console:\n%s\nqemu: %s", m.console.String(), stderr.String())
		}
	})
	return m
}

// expect reads what the guest says until a line starts with prefix, and returns the rest of that line.
func (m *machine) expect(prefix string) string {
	m.t.Helper()
	for line := range m.lines {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return rest
		}
		if strings.HasPrefix(line, "error:") {
			m.t.Fatalf("the guest says %q, waiting for %q", line, prefix)
		}
	}
	m.t.Fatalf("the machine ended before the guest said %q", prefix)
	return ""
}

// tell types a command and returns its answer.
func (m *machine) tell(command string) string {
	m.t.Helper()
	m.typeLine(command)
	return m.expect(command + ": ")
}

func (m *machine) typeLine(command string) {
	m.t.Helper()
	if _, err := io.WriteString(m.in, command+"\n"); err != nil {
		m.t.Fatal(err)
	}
}

// ended waits for QEMU to end by itself.
func (m *machine) ended() {
	m.t.Helper()
	for range m.lines {
	}
	if err := m.cmd.Wait(); err != nil {
		m.t.Fatalf("qemu: %v", err)
	}
}

// qmp sends a command to QEMU's monitor and returns what it answers.
func (m *machine) qmp(command string, arguments any) json.RawMessage {
	m.t.Helper()
	if m.control == nil {
		m.control = connect(m.t, filepath.Join(m.dir, "qmp"))
		m.control.ask(m.t, "qmp_capabilities", nil)
	}
	return m.control.ask(m.t, command, arguments)
}

// control is a connection that speaks JSON, one document per line: QEMU's monitor or the guest's agent.
type control struct {
	conn net.Conn
	docs *json.Decoder
}

func connect(t *testing.T, socket string) *control {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
	return &control{conn, json.NewDecoder(conn)}
}

func (c *control) send(t *testing.T, command string, arguments any) {
	t.Helper()
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := json.NewEncoder(c.conn).Encode(request); err != nil {
		t.Fatal(err)
	}
}

// ask sends a command and reads to its answer; the monitor's greeting and events on the way are dropped.
func (c *control) ask(t *testing.T, command string, arguments any) json.RawMessage {
	t.Helper()
	c.send(t, command, arguments)
	for {
		var reply struct{ Return, Error json.RawMessage }
		if err := c.docs.Decode(&reply); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		if reply.Error != nil {
			t.Fatalf("%s: %s", command, reply.Error)
		}
		if reply.Return != nil {
			return reply.Return
		}
	}
}

// event reads to the named event of the monitor.
func (c *control) event(t *testing.T, name string) {
	t.Helper()
	for {
		var e struct{ Event string }
		if err := c.docs.Decode(&e); err != nil {
			t.Fatalf("waiting for event %s: %v", name, err)
		}
		if e.Event == name {
			return
		}
	}
}

// bootDisk is a copy of the guest's disk that the test may change.
func bootDisk(t *testing.T) string {
	t.Helper()
	if _, err := guest.ReadManifest(built); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(t.TempDir(), "boot.img")
	command(t, "cp", "--sparse=always", filepath.Join(built, guest.Raw), disk)
	return disk
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func writeFile(t *testing.T, path string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
