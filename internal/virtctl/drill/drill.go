// Package drill watches a copy of a machine that was restored to find out whether its backup can be used: it waits until the copy is up and its
// disks are full, reports the result, and removes the copy. It does not know how the copy is made (internal/virtctl/restore makes it).
//
// Whatever a drill makes has the label names.Drill with the copy's name, and belongs to the copy by its UID, so that a drill that was killed can be
// removed by the next one of the same machine.
package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/machine"
)

// Sign is what shows that a guest is up.
type Sign string

// The signs.
const (
	Console Sign = "a line on the serial console"
	Probe   Sign = "the readiness probe"
	Agent   Sign = "the guest agent"
)

// Order is what a drill is to watch.
type Order struct {
	Name  string    // of the copy
	UID   types.UID // of the copy
	Disks []string  // its DataVolumes
	Since time.Time // when it was made
	Sign  Sign
	Line  *regexp.Regexp // of Console
	// BootOnly: the disks need not be full.
	BootOnly bool
	Deadline time.Duration // from Since on
}

// look is how often the cluster is asked.
const look = time.Second

// Outcome is what a drill found out.
type Outcome struct {
	Result  Result
	Message string
	// Up and Full are how long it took, 0 if it did not happen.
	Up, Full time.Duration
	// Last are the last lines of the console.
	Last []string
}

// watcher reads the state of a copy until it is up or has failed.
type watcher struct {
	Order
	c       *kube.Client
	now     func() time.Time
	agent   func(ctx context.Context, name string) error
	logs    func(ctx context.Context, pod string) (io.ReadCloser, error)
	console *console
	reading types.UID // the launcher whose console is read
}

// Watch waits until the drill has a result. It says what it waits for.
func Watch(ctx context.Context, c *kube.Client, o Order, said io.Writer) Outcome {
	w := &watcher{Order: o, c: c, now: time.Now, console: &console{want: o.Line},
		agent: func(ctx context.Context, name string) error {
			_, err := machine.Read(ctx, c, "virtualmachineinstances", name, "guestosinfo")
			return err
		},
		logs: func(ctx context.Context, pod string) (io.ReadCloser, error) { return c.Log(ctx, pod) },
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	return w.watch(ctx, tick.C, said)
}

// watch looks each time that tick says so.
func (w *watcher) watch(ctx context.Context, tick <-chan time.Time, said io.Writer) Outcome {
	following, stop := context.WithCancel(ctx)
	defer stop()
	out, last := Outcome{}, ""
	for {
		s, err := w.observe(ctx, following)
		at := w.now().Sub(w.Since)
		switch {
		case ctx.Err() != nil:
			out.Result, out.Message = Interrupted, "it was interrupted: "+context.Cause(ctx).Error()
			return out
		case err != nil && at < w.Deadline: // the API server may be away for a moment
			s.waits = err.Error()
		case err != nil:
			out.Result, out.Message = Broken, err.Error()
			return out
		default:
			out.note(&s, at)
			s.facts.Up, s.facts.Late, s.facts.BootOnly = out.Up > 0, at >= w.Deadline, w.BootOnly
			if r := judge(s.facts); r.then != Waiting {
				out.Result, out.Message = r.then, w.sentence(r.then, &s)
				_, out.Last, _ = w.console.state()
				return out
			}
		}
		if s.waits != "" && s.waits != last {
			_, _ = fmt.Fprintf(said, "Waiting for %s: %s\n", w.Name, s.waits) // the terminal was closed
			last = s.waits
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
}

// note keeps when something was seen first.
func (o *Outcome) note(s *sight, at time.Duration) {
	if o.Up == 0 && s.facts.Up {
		o.Up = at
	}
	if o.Full == 0 && s.facts.Disks == Full {
		o.Full = at
	}
}

// sentence says why a drill ended so.
func (w *watcher) sentence(r Result, s *sight) string {
	switch r {
	case Passed:
		return "it came up"
	case DiskFailed:
		return "a disk cannot be restored: " + s.waits
	case GuestEnded:
		return fmt.Sprintf("its guest ended before %s showed that it is up: %s", w.Sign, s.waits)
	case CopyRemoved:
		return "its copy was deleted by somebody else; another drill of the machine removes those that it finds"
	case NotUp:
		return fmt.Sprintf("%s did not show within %s that it is up: %s", w.Sign, w.Deadline, s.waits)
	case NotFull:
		return fmt.Sprintf("it came up, and its disks were not full within %s: %s", w.Deadline, s.waits)
	case Waiting, Broken, Interrupted: // not by a rule
	}
	return string(r)
}

// errForeign is about an object that has the name, and is another.
var errForeign = errors.New("it is another one of that name")
