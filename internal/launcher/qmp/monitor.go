// Package qmp speaks QEMU's machine protocol (QMP) over the machine's second monitor: it runs commands, passes open files, and answers
// questions about the guest's block devices.
//
// It does not know libvirt, which has a monitor of its own, or why a command is run.
package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// Socket is the path of the socket of the machine's second monitor. libvirt has the first, and cannot pass QEMU a file that another
// process has opened.
const Socket = launcherapi.StateDir + "/monitor.sock"

// Monitor is a connection to QEMU. Several goroutines may use it.
type Monitor struct {
	conn    *net.UnixConn
	mu      sync.Mutex // one command at a time
	answers chan reply
	Deleted chan string   // ids of devices that the guest has released
	Gone    chan struct{} // closed when QEMU has ended
	// Sent reports whether the migration was completed and the guest has not run here since. It is read after Gone is closed.
	Sent bool
}

type reply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
	Data  struct {
		Device string `json:"device"`
		Status string `json:"status"`
	} `json:"data"`
}

// Refusal is the error that QEMU returned for a command, in its own words.
type Refusal struct{ command, class, text string }

func (r *Refusal) Error() string { return fmt.Sprintf("QEMU: %s: %s", r.command, r.text) }

// Missing reports whether a command failed because the machine has no such device.
func Missing(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && r.class == "DeviceNotFound"
}

// ErrClosed is the error of commands after QEMU has ended.
var ErrClosed = errors.New("QEMU's monitor is closed")

// Dial connects to the monitor at a socket and makes it ready for commands.
func Dial(ctx context.Context, path string) (*Monitor, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the monitor: %w", err)
	}
	m := &Monitor{conn: c.(*net.UnixConn), answers: make(chan reply), Deleted: make(chan string, 64), Gone: make(chan struct{})}
	go m.read()
	if _, err := m.Run("qmp_capabilities", nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return m, nil
}

// read tells answers from events until QEMU ends. QEMU's greeting is ignored.
func (m *Monitor) read() {
	defer close(m.Gone)
	defer close(m.answers)
	for d := json.NewDecoder(m.conn); ; {
		var r reply
		if err := d.Decode(&r); err != nil {
			m.Sent = m.Sent && errors.Is(err, io.EOF) // QEMU closes its disks before its monitors, so a connection that ends in order means that they are closed
			return
		}
		switch {
		case r.Event == "MIGRATION":
			m.Sent = r.Data.Status == "completed"
		case r.Event == "RESUME":
			m.Sent = false
		case r.Event == "DEVICE_DELETED" && r.Data.Device != "":
			select {
			case m.Deleted <- r.Data.Device:
			default: // the buffer is full: who removes a device asks again
			}
		case r.Return != nil || r.Error != nil:
			m.answers <- r
		}
	}
}

// Run runs a command and returns QEMU's answer, or a *refusal.
func (m *Monitor) Run(command string, arguments any) (json.RawMessage, error) {
	return m.RunWithFile(command, arguments, nil)
}

// RunWithFile runs a command that QEMU gets an open file with. The caller still owns the file.
func (m *Monitor) RunWithFile(command string, arguments any, file *os.File) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return nil, err
	}
	var rights []byte
	if file != nil {
		rights = syscall.UnixRights(int(file.Fd()))
	}
	if _, _, err := m.conn.WriteMsgUnix(text, rights, nil); err != nil {
		return nil, fmt.Errorf("tell QEMU to %s: %w", command, err)
	}
	r, ok := <-m.answers
	switch {
	case !ok:
		return nil, ErrClosed
	case r.Error != nil:
		return nil, &Refusal{command, r.Error.Class, r.Error.Desc}
	}
	return r.Return, nil
}
