//go:build host

package launcher

import (
	"fmt"
	"testing"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestMoveMemory: what a guest writes to its memory while it is sent is there where it arrives.
func TestMoveMemory(t *testing.T) {
	w := newWorld(t)
	source := w.boot("0", "a")
	source.tell("memory 16777216")
	for i, at := range []string{"b", "a", "b", "a"} {
		id, pod := fmt.Sprintf("move-%d", i+1), fmt.Sprint(i+1)
		target := w.target(pod, at, id)
		keys(t, id, source, target)
		target.stage(launcherapi.MoveWaits)
		source.move(launcherapi.Move{ID: id, Disks: []string{"local"}, Volumes: []string{"data", "scratch", "local", "init"}, To: target.address, Pod: pod})
		r := source.report()
		if r.End != launcherapi.Moved {
			t.Fatalf("the source ended with %+v", r)
		}
		target.stage(launcherapi.MoveRuns)
		t.Logf("moved to %s; the guest stood still for %d ms; its memory: %s", at, r.Pause, target.tell("memory"))
		source = target
	}
}
