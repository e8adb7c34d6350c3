package launcher

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

// Monitor is the socket of the machine's second monitor. The first is libvirt's, which cannot hand QEMU a file that
// another process opened.
const Monitor = launcherapi.StateDir + "/monitor.sock"

// monitor speaks QEMU's machine protocol.
type monitor struct {
	conn    *net.UnixConn
	mu      sync.Mutex // one command at a time
	answers chan reply
	deleted chan string // ids of devices the guest has given up
	gone    chan struct{}
	sent    bool // all of the guest was sent, and it did not run afterwards; to be read when QEMU is gone
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

// refusal is QEMU's own sentence about a command it would not carry out.
type refusal struct{ command, class, text string }

func (r *refusal) Error() string { return fmt.Sprintf("QEMU: %s: %s", r.command, r.text) }

// missing: the command was about a device that is not there.
func missing(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.class == "DeviceNotFound"
}

var errMonitorGone = errors.New("QEMU's monitor is closed")

func dialMonitor(ctx context.Context, path string) (*monitor, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the monitor: %w", err)
	}
	m := &monitor{conn: c.(*net.UnixConn), answers: make(chan reply), deleted: make(chan string, 64), gone: make(chan struct{})}
	go m.read()
	if _, err := m.run("qmp_capabilities", nil, nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return m, nil
}

// read sorts answers from events until QEMU is gone. The greeting is neither.
func (m *monitor) read() {
	defer close(m.gone)
	defer close(m.answers)
	for d := json.NewDecoder(m.conn); ; {
		var r reply
		if err := d.Decode(&r); err != nil {
			m.sent = m.sent && errors.Is(err, io.EOF) // QEMU closes its disks before its monitors, and says nothing else at its end
			return
		}
		switch {
		case r.Event == "MIGRATION":
			m.sent = r.Data.Status == "completed"
		case r.Event == "RESUME":
			m.sent = false
		case r.Event == "DEVICE_DELETED" && r.Data.Device != "":
			select {
			case m.deleted <- r.Data.Device:
			default: // there are more than anything asked for; a waiter asks again
			}
		case r.Return != nil || r.Error != nil:
			m.answers <- r
		}
	}
}

// run carries a command out, with a file if QEMU is to have one.
func (m *monitor) run(command string, arguments any, file *os.File) (json.RawMessage, error) {
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
		return nil, errMonitorGone
	case r.Error != nil:
		return nil, &refusal{command, r.Error.Class, r.Error.Desc}
	}
	return r.Return, nil
}

// freePort is a PCI Express port with nothing in it.
func (m *monitor) freePort() (string, error) {
	answer, err := m.run("query-pci", nil, nil)
	if err != nil {
		return "", err
	}
	type device struct {
		ID     string `json:"qdev_id"`
		Bridge *struct {
			Devices []json.RawMessage `json:"devices"`
		} `json:"pci_bridge"`
	}
	var buses []struct {
		Devices []device `json:"devices"`
	}
	if err := json.Unmarshal(answer, &buses); err != nil {
		return "", fmt.Errorf("read QEMU's list of devices: %w", err)
	}
	for _, b := range buses {
		for _, d := range b.Devices {
			if d.Bridge != nil && d.ID != "" && len(d.Bridge.Devices) == 0 {
				return d.ID, nil
			}
		}
	}
	return "", errors.New("every PCI port of the machine is taken; add the disk with bus scsi, or remove another first")
}

// disk is the block node that the guest's disk is on, and the disk's size.
func (m *monitor) disk(volume string) (string, int64, error) {
	drives, err := m.drives()
	if err != nil {
		return "", 0, err
	}
	d, ok := drives[volume]
	if !ok {
		return "", 0, fmt.Errorf("the guest has no disk %s", volume)
	}
	return d.node, d.size, nil
}

// nodeOf is the block node that has a file open.
func (m *monitor) nodeOf(path string) (string, error) {
	answer, err := m.run("query-named-block-nodes", map[string]bool{"flat": true}, nil)
	if err != nil {
		return "", err
	}
	var nodes []struct {
		Name   string `json:"node-name"`
		Driver string `json:"drv"`
		File   string `json:"file"`
	}
	if err := json.Unmarshal(answer, &nodes); err != nil {
		return "", fmt.Errorf("read QEMU's list of block nodes: %w", err)
	}
	for _, n := range nodes {
		if n.File == path && (n.Driver == "file" || n.Driver == "host_device") {
			return n.Name, nil
		}
	}
	return "", fmt.Errorf("QEMU has no block node for %s", path)
}
