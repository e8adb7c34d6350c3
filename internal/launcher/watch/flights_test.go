package watch

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/testing/qmptest"
)

// TestStuck: a disk is said to be stuck if it has reads or writes in flight at two looks and none came back between them.
func TestStuck(t *testing.T) {
	for name, c := range map[string]struct {
		first, second string
		stuck         bool
	}{
		"idle":           {`{"inuse": 0, "used-idx": 5, "vring-num": 256}`, `{"inuse": 0, "used-idx": 5, "vring-num": 256}`, false},
		"busy":           {`{"inuse": 3, "used-idx": 5, "vring-num": 256}`, `{"inuse": 3, "used-idx": 9, "vring-num": 256}`, false},
		"just begun":     {`{"inuse": 0, "used-idx": 4, "vring-num": 256}`, `{"inuse": 1, "used-idx": 5, "vring-num": 256}`, false},
		"stuck":          {`{"inuse": 3, "used-idx": 5, "vring-num": 256}`, `{"inuse": 4, "used-idx": 5, "vring-num": 256}`, true},
		"no such device": {`{"vring-num": 0}`, `{"vring-num": 0}`, false},
	} {
		answers := []string{c.first, c.second}
		if c.first == `{"vring-num": 0}` {
			answers = append(answers, answers...)
		}
		f := &pendingIO{last: map[string]string{}, qemu: answering(t, func(queue int) string {
			if queue > 0 {
				answers = answers[1:]
				return `{"vring-num": 0}`
			}
			return answers[0]
		})}
		disks := map[string]*backing.Remote{"root": {Address: netdisk.Address{Protocol: "rbd"}}}
		if got := f.stuck(disks); len(got) > 0 {
			t.Errorf("%s: stuck at the first look: %v", name, got)
		}
		got := f.stuck(disks)["root"]
		if (got != "") != c.stuck || c.stuck && (!strings.HasPrefix(got, inFlight) || !strings.Contains(got, "ceph health detail")) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestCauses: a guest that is paused for want of room says that, and one whose reads do not come back says that.
func TestCauses(t *testing.T) {
	var cause launcherapi.Fault
	s := newStalled()
	s.Say = func(_ string, c launcherapi.Fault) { cause = c }
	s.Why = func() []string { return []string{"volume root is full"} }
	s.broken = true
	s.failed(s.now)
	if cause != launcherapi.DiskFull {
		t.Errorf("paused for want of room: %q", cause)
	}
	s = newStalled()
	s.Say = func(_ string, c launcherapi.Fault) { cause = c }
	s.waiting["root"] = waits{s.now.Add(-time.Minute), inFlight + " (3 of them)"}
	s.asked = s.now
	s.tell()
	if cause != launcherapi.DiskStalled {
		t.Errorf("reads do not come back: %q", cause)
	}
	s.failed(s.now) // its client has given up
	if cause != launcherapi.DiskStalled {
		t.Errorf("reads did not come back, and have failed: %q", cause)
	}
}

// answering is a QEMU that is asked about the queues of a disk.
func answering(t *testing.T, answer func(queue int) string) *qmp.Monitor {
	t.Helper()
	return qmptest.Fake(t, func(command string, arguments json.RawMessage) (string, bool) {
		var about struct{ Queue int }
		text := `{}`
		if command == "x-query-virtio-queue-status" && json.Unmarshal(arguments, &about) == nil {
			text = answer(about.Queue)
		}
		return `{"return": ` + text + "}", false
	})
}
