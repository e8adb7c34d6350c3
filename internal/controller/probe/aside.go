package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// ErrNoAnswerYet means that the question was put, and the answer is not there yet. It is no failure: look again later.
var ErrNoAnswerYet = errors.New("no answer yet")

// Aside asks questions in the background: a reconciler that waited for a pod's answer could not serve other objects, and a tenant
// with enough pods that never answer could stop it. There is at most one call at a time for a key, and it ends after the
// patience. The key must identify exactly who is asked (the UID of a pod, not its name or address), so that an answer is never
// taken for another pod's.
type Aside[K comparable, A any] struct {
	// Patience is how long an answer may take.
	Patience time.Duration

	mu    sync.Mutex
	calls map[K]*call[A]
	swept time.Time
}

// call is the question of one key.
type call[A any] struct {
	running bool
	known   bool // answer and err are what the last question came to
	answer  A
	err     error
	when    time.Time // it was put, or answered
}

// forget is how long a finished call is remembered. A caller that still wants the answer comes back sooner.
const forget = 5 * time.Minute

// Latest returns the last answer to the question, and puts it again for the next time. Before the first answer it is
// ErrNoAnswerYet; when the last try failed it is that error.
func (a *Aside[K, A]) Latest(key K, question func(context.Context) (A, error)) (A, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.call(key)
	answer, err := c.result()
	if !c.running {
		a.put(key, c, question, func() {})
	}
	return answer, err
}

// Once returns the answer to the question, which is put if it was not. The answer is given once: who asks again after it puts the
// question again. done is called when the answer is there.
func (a *Aside[K, A]) Once(key K, question func(context.Context) (A, error), done func()) (A, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.call(key)
	answer, err := c.result()
	if !c.known && !c.running {
		a.put(key, c, question, done)
	}
	c.known = false
	return answer, err
}

func (c *call[A]) result() (A, error) {
	if !c.known {
		var none A
		return none, ErrNoAnswerYet
	}
	return c.answer, c.err
}

// call returns the cached call for key and evicts idle entries.
func (a *Aside[K, A]) call(key K) *call[A] {
	if a.calls == nil {
		a.calls = map[K]*call[A]{}
	}
	now := time.Now()
	if now.Sub(a.swept) > forget {
		a.swept = now
		maps.DeleteFunc(a.calls, func(_ K, c *call[A]) bool { return !c.running && now.Sub(c.when) > forget })
	}
	c := a.calls[key]
	if c == nil {
		c = &call[A]{}
		a.calls[key] = c
	}
	c.when = now
	return c
}

// put has the question answered. One that does not end with its context is given up after the patience all the same, but
// its key is not asked again before it has ended: they cannot pile up.
func (a *Aside[K, A]) put(key K, c *call[A], question func(context.Context) (A, error), done func()) {
	c.running = true
	said := make(chan call[A], 1)
	ctx, cancel := context.WithTimeout(context.Background(), a.Patience)
	go func() {
		answer, err := question(ctx)
		said <- call[A]{answer: answer, err: err}
	}()
	go func() {
		defer cancel()
		select {
		case last := <-said:
			a.note(c, last, false)
			done()
		case <-ctx.Done():
			last := call[A]{err: fmt.Errorf("%v: no answer within %s", key, a.Patience)}
			a.note(c, last, true)
			done()
			<-said
			a.mu.Lock()
			c.running = false
			a.mu.Unlock()
		}
	}()
}

func (a *Aside[K, A]) note(c *call[A], last call[A], running bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.answer, c.err, c.known, c.running, c.when = last.answer, last.err, true, running, time.Now()
}
