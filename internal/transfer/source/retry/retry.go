// Package retry makes a source's reads steady: a range whose connection breaks or stalls is opened again where it
// stopped, a few times and with growing pauses, before the error reaches the transfer. It knows no protocol: what is
// worth another try follows from the reason in the error.
package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/berth-vm/berth/internal/task"
)

// Policy says how patient to be.
type Policy struct {
	Attempts int           // tries that bring nothing before the error surfaces; at least 1
	First    time.Duration // pause before the second try; it doubles with each further one
	Max      time.Duration // and never exceeds this
	Idle     time.Duration // how long a read may bring no byte before its connection counts as dead
	// Told is called with the reason for a pause before the next try; it may be nil.
	Told func(error)
}

// Default is patient enough for a server's restart (pauses of 0.5, 1, 2, 4, 8 s) and no more: the controller starts the
// worker again with pauses of its own, and a user who waits should see the reason.
var Default = Policy{Attempts: 6, First: 500 * time.Millisecond, Max: 8 * time.Second, Idle: time.Minute}

// progress is how much a try must bring for the count to start again. Without it a server that gives one byte per connection
// would keep a transfer alive for ever.
const progress = 1 << 20

// After is an error whose server said when to come back (Retry-After).
type After struct {
	Err  error
	Wait time.Duration
}

func (e *After) Error() string { return e.Err.Error() }
func (e *After) Unwrap() error { return e.Err }

// Worth reports whether err may go away by itself within seconds.
func Worth(err error) bool {
	var e *task.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Reason == task.SourceUnreachable || e.Reason == task.SourceUnavailable || e.Reason == task.SourceTruncated
}

// Do runs f until it succeeds, its error is not worth another try, or the attempts are used up.
func (p Policy) Do(ctx context.Context, f func(context.Context) error) error {
	for try := 1; ; try++ {
		err := f(ctx)
		if err == nil || try >= p.Attempts || !Worth(err) || ctx.Err() != nil {
			return err
		}
		if !p.pause(ctx, try, err) {
			return err
		}
	}
}

// pause waits before the next try and reports whether there is one.
func (p Policy) pause(ctx context.Context, try int, err error) bool {
	if p.Told != nil {
		p.Told(err)
	}
	wait := p.Max
	if shift := try - 1; shift < 20 { // beyond, First shifted could overflow; Max is reached long before
		wait = min(p.First<<shift, p.Max)
	}
	// Many workers of one outage must not come back in step.
	wait = wait/2 + rand.N(wait/2+1) //nolint:gosec // guessing it gains nothing
	var after *After
	if errors.As(err, &after) {
		wait = min(max(wait, after.Wait), 2*p.Max)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
