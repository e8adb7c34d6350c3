package move

import (
	"testing"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestMoveLimits: what libvirt is told, and when nothing was sent for too long.
func TestMoveLimits(t *testing.T) {
	if flags, params := limited(libvirt.MigrateLive, nil, launcherapi.MoveLimits{}); flags != libvirt.MigrateLive || len(params) != 0 {
		t.Errorf("without limits: %v %v", flags, params)
	}
	for bytes, want := range map[int64]uint64{1: 1, 64 << 20: 64, 1 << 40: 1 << 20} {
		flags, params := limited(libvirt.MigrateLive, nil, launcherapi.MoveLimits{Bandwidth: bytes, Converge: true})
		if flags&libvirt.MigrateAutoConverge == 0 || len(params) != 1 || params[0].Field != "bandwidth" || params[0].Value.I != want {
			t.Errorf("%d bytes a second: %v %v", bytes, flags, params)
		}
	}
	start := time.Unix(0, 0)
	s := stillness{limit: launcherapi.MoveLimits{Still: 10}.Stall()}
	for _, c := range []struct {
		after time.Duration
		sent  int64
		want  bool
	}{{0, 0, false}, {9, 0, false}, {10, 5, false}, {20, 5, false}, {21, 5, true}} {
		if got := s.since(c.sent, start.Add(c.after*time.Second)); got != c.want {
			t.Errorf("after %ds: %t", c.after, got)
		}
	}
	if launcherapi.MoveLimits.Each(launcherapi.MoveLimits{}) != 150*time.Second || (launcherapi.MoveLimits{PerGiB: 7}).Each() != 7*time.Second {
		t.Error("another time for each GiB")
	}
}
