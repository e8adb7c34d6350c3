package layercache

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns: namespaces take turns, and within each the first comes first; one that sends many layers delays another by one of
// them, and for no longer than a share of its time.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q turns
		var mu sync.Mutex
		var order []string
		pace := Pace{Queue: time.Hour, Make: time.Hour, Share: 30 * time.Second}
		_, first, err := q.take(t.Context(), "mallory", pace)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, from := range []string{"mallory", "mallory", "mallory", "victim", "other", "victim"} {
			all.Go(func() {
				_, done, err := q.take(t.Context(), from, pace)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, from)
				mu.Unlock()
				<-time.After(time.Second)
				done()
			})
			synctest.Wait()
		}
		first()
		all.Wait()
		if want := []string{"mallory", "victim", "other", "mallory", "victim", "mallory"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
		if q.now != nil || len(q.waiting) != 0 || len(q.order) != 0 {
			t.Errorf("something is left: %+v", &q)
		}
	})
}

// TestTurnEnds: a turn ends after its share if another namespace waits, and after the whole time if none does, or only the
// namespace itself.
func TestTurnEnds(t *testing.T) {
	for name, c := range map[string]struct {
		waits string
		want  time.Duration
		why   error
	}{
		"alone":             {"", 10 * time.Minute, errTooLong},
		"its own namespace": {"mallory", 10 * time.Minute, errTooLong},
		"another":           {"victim", 30 * time.Second, errOthersWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q turns
				began := time.Now()
				ctx, done, err := q.take(t.Context(), "mallory", Pace{Queue: time.Hour, Make: 10 * time.Minute, Share: 30 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				waited := make(chan error, 1)
				go func() {
					if c.waits == "" {
						waited <- nil
						return
					}
					<-time.After(10 * time.Second)
					_, its, err := q.take(t.Context(), c.waits, Pace{Queue: time.Hour, Make: time.Hour, Share: time.Hour})
					if err == nil {
						its()
					}
					waited <- err
				}()
				<-ctx.Done()
				if got := time.Since(began); got != c.want || !errors.Is(context.Cause(ctx), c.why) {
					t.Errorf("after %v: %v, want %v after %v", got, context.Cause(ctx), c.why, c.want)
				}
				done()
				if err := <-waited; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestQueueEnds: who waits too long is refused, and is not given a turn later.
func TestQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q turns
		pace := Pace{Queue: time.Minute, Make: time.Hour, Share: time.Hour}
		_, done, err := q.take(t.Context(), "mallory", pace)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := q.take(t.Context(), "victim", pace); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		done()
		if q.now != nil || len(q.waiting) != 0 || len(q.order) != 0 {
			t.Errorf("something is left: %+v", &q)
		}
	})
}

// TestLayerIsCut: a layer that takes longer than its share is given up for the next namespace, and nothing of it is left.
func TestLayerIsCut(t *testing.T) {
	c := newCache(t, t.TempDir(), 1<<30)
	slow, small := packed(t, 1, map[string]int{"a": 64 << 20}), packed(t, 2, map[string]int{"a": 10})
	hasty := quick
	hasty.Make = time.Millisecond
	conn, done := asker(t, c, hasty)
	if _, _, err := Ask(t.Context(), conn, slow.digest(), int64(len(slow.data)), slow); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), errTooLong.Error()) {
		t.Errorf("it was not cut: %v", err)
	}
	<-done
	left(t, c, 0)
	take(t, c, small)
}

// TestPromises: a client that announces a large layer takes no space for it, and evicts no layers of others, before it arrives.
func TestPromises(t *testing.T) {
	c := newCache(t, t.TempDir(), 16<<30)
	there := packed(t, 1, map[string]int{"a": 600 << 10})
	_, files := take(t, c, there)
	_ = files[0].Close()
	before := c.Counts()
	for range 3 {
		conn, _ := asker(t, c, quick)
		if err := say(conn, asked{Version: Version, Digest: there.digest(), Size: largest}, nil); err != nil {
			t.Fatal(err)
		}
		if a, _, err := told(conn); err != nil || !a.Send {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	if after := c.Counts(); after != before {
		t.Errorf("promises changed %+v to %+v", before, after)
	}
	conn, done := asker(t, newCache(t, t.TempDir(), 1<<20), quick)
	if err := say(conn, asked{Version: Version, Digest: there.digest(), Size: 2 << 20}, nil); err != nil {
		t.Fatal(err)
	}
	if a, _, err := told(conn); err != nil || a.Refused == "" {
		t.Errorf("what can never fit was begun: %+v, %v", a, err)
	}
	<-done
}
