package layercache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// turns lets one layer at a time be made, which bounds the memory, and gives each namespace its turn: however many layers one of them sends, those of
// another wait for one of these at most, and not for longer than a share of its time.
type turns struct {
	mu      sync.Mutex
	now     *turn
	waiting []*turn // of each namespace in the order in which they came
	order   []string
}

// turn is the time in which one layer is made.
type turn struct {
	from  string // the namespace
	ready chan struct{}
	began time.Time
	share time.Duration // what of its time it has for certain
	stop  context.CancelCauseFunc
	cut   *time.Timer // nil: no one else waits
}

// Why a layer is not made to its end.
var (
	errOthersWait = errors.New("it takes long, and others wait")
	errTooLong    = errors.New("it takes too long")
)

// take waits until it is the namespace's turn. The context that it returns ends when the turn does: after pace.Make, or after pace.Share if another
// namespace waits. The caller calls done when the layer is made, or is not.
func (q *turns) take(ctx context.Context, from string, pace Pace) (_ context.Context, done func(), _ error) {
	t := &turn{from: from, ready: make(chan struct{}), share: pace.Share}
	q.mu.Lock()
	q.enter(t)
	q.mu.Unlock()
	queue, cancel := context.WithTimeout(ctx, pace.Queue)
	defer cancel()
	select {
	case <-t.ready:
	case <-queue.Done():
		if q.leave(t) {
			return nil, nil, fmt.Errorf("the layers of others took more than %v: %w", pace.Queue, queue.Err())
		}
	}
	making, stop := context.WithCancelCause(ctx)
	making, end := context.WithTimeoutCause(making, pace.Make, errTooLong)
	q.mu.Lock()
	t.began, t.stop = time.Now(), stop
	q.bound()
	q.mu.Unlock()
	return making, func() {
		end()
		stop(nil)
		q.next(t)
	}, nil
}

// enter adds a waiting request, or gives it the turn.
func (q *turns) enter(t *turn) {
	if q.now == nil {
		q.begin(t)
		return
	}
	q.waiting = append(q.waiting, t)
	if !slices.Contains(q.order, t.from) {
		q.order = append(q.order, t.from)
	}
	q.bound()
}

func (q *turns) begin(t *turn) {
	q.now = t
	close(t.ready)
}

// bound has the turn end after its share if another namespace waits.
func (q *turns) bound() {
	t := q.now
	others := slices.ContainsFunc(q.waiting, func(w *turn) bool { return w.from != t.from })
	if !others || t.stop == nil || t.cut != nil {
		return
	}
	stop := t.stop
	t.cut = time.AfterFunc(t.share-time.Since(t.began), func() { stop(errOthersWait) })
}

// leave removes a request that does not wait any more. It returns false if the request has the turn already.
func (q *turns) leave(t *turn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.now == t {
		return false
	}
	q.remove(t)
	return true
}

// remove removes a waiting request.
func (q *turns) remove(t *turn) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w *turn) bool { return w == t })
	if !slices.ContainsFunc(q.waiting, func(w *turn) bool { return w.from == t.from }) {
		q.order = slices.DeleteFunc(q.order, func(from string) bool { return from == t.from })
	}
}

// next ends a turn, and begins that of the namespace that has waited for longest since its last.
func (q *turns) next(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.cut != nil {
		t.cut.Stop()
	}
	q.now = nil
	if len(q.order) == 0 {
		return
	}
	from := q.order[0]
	i := slices.IndexFunc(q.waiting, func(w *turn) bool { return w.from == from })
	w := q.waiting[i]
	q.remove(w)
	if j := slices.Index(q.order, from); j >= 0 { // it has more: they come after those of all others
		q.order = append(slices.Delete(q.order, j, j+1), from)
	}
	q.begin(w)
}
