//go:build host

package launcher

import (
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// verb carries a verb out as the pod's own programs do, and returns why it was refused.
func (n *pod) verb(verb string) string {
	n.t.Helper()
	c, err := net.Dial("unix", filepath.Join(n.dir, "run/launcher/verbs.sock"))
	if err != nil {
		n.t.Fatalf("verbs of %s: %v", n.dir, err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, verb+"\n"); err != nil {
		n.t.Fatal(err)
	}
	var said launcherapi.Said
	if err := json.NewDecoder(c).Decode(&said); err != nil {
		n.t.Fatal(err)
	}
	return said.Refused
}

// TestMovePaused: a guest that a user has paused moves to another launcher, is paused there, and continues when a user resumes it.
// While it is sent its state cannot be changed, and a guest whose move fails is paused as it was.
func TestMovePaused(t *testing.T) {
	w := newWorld(t)
	source := w.boot("1", "a")
	both, all := []string{"local"}, []string{"data", "scratch", "local", "init"}
	source.tell("write vdc 1048576 4194304 7")
	if why := source.verb(launcherapi.PauseVerb); why != "" {
		t.Fatal(why)
	}

	target := w.target("2", "b", "move-1")
	keys(t, "move-1", source, target)
	target.stage(launcherapi.MoveWaits)
	slow := launcherapi.MoveLimits{Bandwidth: 16 << 20, PerGiB: 600, Still: 60, Downtime: 500}
	source.move(launcherapi.Move{ID: "move-1", Disks: both, Volumes: all, To: target.address, Pod: "2", Limits: slow})
	source.sends()
	if why := source.verb(launcherapi.UnpauseVerb); !strings.Contains(why, "is being moved") {
		t.Errorf("on the way it is let go on: %q", why)
	}
	source.move(launcherapi.Move{ID: "move-1", Disks: both, Volumes: all, To: target.address, Pod: "2", Limits: slow, Cancel: true})
	source.stage(launcherapi.MoveStopped)
	target.kill()
	if !source.returns().Paused {
		t.Error("a guest that stays is not paused any more")
	}
	if why := source.verb(launcherapi.UnpauseVerb); why != "" {
		t.Error(why)
	}
	if got := source.tell("verify vdc 1048576 4194304 7"); got != "same" {
		t.Errorf("its disk: %s", got)
	}
	if why := source.verb(launcherapi.PauseVerb); why != "" {
		t.Fatal(why)
	}

	target = w.target("3", "b", "move-2")
	keys(t, "move-2", source, target)
	target.stage(launcherapi.MoveWaits)
	source.move(launcherapi.Move{ID: "move-2", Disks: both, Volumes: all, To: target.address, Pod: "3"})
	if r := source.report(); r.End != launcherapi.Moved || r.To != "3" {
		t.Fatalf("the source ended with %+v", r)
	}
	target.stage(launcherapi.MoveRuns)
	tick, late := time.NewTicker(50*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !target.returns().Paused {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("at the target it is not paused")
		}
	}
	if why := target.verb(launcherapi.PauseVerb); why != guest.ErrAlreadyPaused.Error() {
		t.Errorf("pause it again: %q", why)
	}
	if why := target.verb(launcherapi.UnpauseVerb); why != "" {
		t.Fatal(why)
	}
	if got := target.tell("verify vdc 1048576 4194304 7"); got != "same" || target.boots() != 0 {
		t.Errorf("its disk: %s; it was started %d times", got, target.boots())
	}
}
