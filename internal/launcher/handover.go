package launcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/launcher/movelink"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// word is what the target is told of a guest that has ended here, so that it lets it run. It is said once.
type word struct {
	mu    sync.Mutex // held while it is being said
	said  bool
	over  bool // the guest ended in another way, and nothing is to be said any more
	pause time.Duration
}

// wordWithin is how long the target may take to answer.
const wordWithin = 15 * time.Second

// say tells the target, unless it was told.
func (v *moves) say(ctx context.Context) error {
	v.mu.Lock()
	to := v.to
	v.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wordWithin)
	defer cancel()
	if err := to.Tell(ctx, movelink.Gone, nil); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.word.said = true; !v.since.IsZero() {
		v.word.pause = time.Since(v.since)
	}
	return nil
}

// tellEarly tells the target when QEMU has ended, and libvirt, which looks whether it has every 200 ms, does not know yet. What QEMU itself has
// said is enough: all of the guest was sent, it did not run again, and now it cannot. Whether all has come is the target's to know. If
// it cannot be told, it is told when libvirt says so.
func (v *moves) tellEarly(ctx context.Context, qemu *qmp.Monitor) {
	<-qemu.Gone
	v.word.mu.Lock()
	defer v.word.mu.Unlock()
	if qemu.Sent && !v.word.over && !v.word.said {
		_ = v.say(ctx)
	}
}

// handOver tells the target of a guest that has ended here because it moved, if it has not been told. If the target cannot be reached, the
// report tells the controller, and that the target.
func (v *moves) handOver(ctx context.Context, r launcherapi.Report) launcherapi.Report {
	v.word.mu.Lock()
	defer v.word.mu.Unlock()
	if v.word.over = true; r.End != launcherapi.Moved && !v.word.said {
		return r
	}
	v.mu.Lock()
	at := v.at
	v.mu.Unlock()
	r.End, r.To, r.Detail = launcherapi.Moved, at.Pod, fmt.Sprintf("the guest moved to pod %s", at.Pod)
	if !v.word.said {
		if err := v.say(ctx); err != nil {
			r.Detail = fmt.Sprintf("the guest moved to pod %s, which could not be told so: %v", at.Pod, err)
			return r
		}
	}
	r.Pause = v.word.pause.Milliseconds()
	return r
}
