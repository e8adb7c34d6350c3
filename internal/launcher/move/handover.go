package move

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/launcher/movelink"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// word is the message to the target that the guest has ended here, after which the target runs it. It is sent once.
type word struct {
	mu    sync.Mutex // held while the message is sent
	said  bool
	over  bool          // the end of the guest is reported; nothing is sent any more
	pause time.Duration // how long the guest did not run
}

// wordWithin is how long the target may take to answer.
const wordWithin = 15 * time.Second

// say sends the message to the target.
func (v *Source) say(ctx context.Context) error {
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

// tellEarly sends the message as soon as QEMU has ended, which libvirt notices up to 200 ms later. QEMU's own events are enough: all of the guest
// was sent, it did not run again, and now it cannot. The target checks whether all of it has arrived. If the message cannot be sent, it is sent
// again when libvirt reports the end.
func (v *Source) tellEarly(ctx context.Context, qemu *qmp.Monitor) {
	<-qemu.Gone
	v.word.mu.Lock()
	defer v.word.mu.Unlock()
	if qemu.Sent && !v.word.over && !v.word.said {
		_ = v.say(ctx)
	}
}

// HandOver completes the report of a guest that has ended here, and sends the message to the target if the guest moved and it was not sent. If
// the target cannot be reached, the controller learns that from the report and tells the target.
func (v *Source) HandOver(ctx context.Context, r launcherapi.Report) launcherapi.Report {
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
