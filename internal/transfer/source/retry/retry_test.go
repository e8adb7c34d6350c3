package retry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// The tests run in bubbles of synctest, where time is not real: an hour of patience takes no time at all.
var patience = Policy{Attempts: 4, First: time.Second, Max: 10 * time.Second, Idle: time.Minute}

// script is a blob whose readers do what they are told, one after another; then they just read.
type script struct {
	p      []byte
	stream bool
	acts   []act
	opened []int64 // offsets
}

// act is one reader: it gives n bytes and then err, or nothing more at all if err is nil.
type act struct {
	n      int64
	err    error
	refuse error // of Open
}

func (s *script) Info() source.Info {
	return source.Info{Name: "script", Size: int64(len(s.p)), Ranged: !s.stream}
}
func (s *script) Close() error { return nil }

func (s *script) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	s.opened = append(s.opened, off)
	if n < 0 {
		n = int64(len(s.p)) - off
	}
	body := bytes.NewReader(s.p[off : off+n])
	if len(s.acts) == 0 {
		return io.NopCloser(body), nil
	}
	a := s.acts[0]
	s.acts = s.acts[1:]
	if a.refuse != nil {
		return nil, a.refuse
	}
	var end io.Reader = silence{ctx}
	if a.err != nil {
		end = iotest.ErrReader(a.err)
	}
	return io.NopCloser(io.MultiReader(io.LimitReader(body, a.n), end)), nil
}

// silence is a connection on which nothing comes.
type silence struct{ ctx context.Context }

func (s silence) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func get(ctx context.Context, b source.Blob) ([]byte, error) {
	r, err := b.Open(ctx, 0, -1)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(r)
	return got, errors.Join(err, r.Close())
}

var (
	reset   = task.Errorf(task.SourceUnreachable, "reset")
	gone    = task.Errorf(task.SourceNotFound, "gone")
	changed = task.Errorf(task.SourceChanged, "changed")
)

func TestReading(t *testing.T) {
	p := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	mib := int64(1 << 20)
	for name, c := range map[string]struct {
		acts   []act
		stream bool
		opens  int
		want   task.Reason // empty: all bytes come
		got    int64
	}{
		"nothing happens":        {opens: 1},
		"reset":                  {acts: []act{{n: 1000, err: reset}}, opens: 2},
		"stalled":                {acts: []act{{n: 1000}}, opens: 2},
		"stalled at once":        {acts: []act{{}, {}}, opens: 3},
		"refused":                {acts: []act{{refuse: reset}, {n: 1, err: reset}, {refuse: reset}}, opens: 4},
		"early end":              {acts: []act{{n: 5, err: io.EOF}}, opens: 2},
		"progress renews":        {acts: []act{{n: mib, err: reset}, {err: reset}, {err: reset}, {n: mib, err: reset}, {err: reset}, {err: reset}}, opens: 7},
		"too often":              {acts: []act{{n: 7, err: reset}, {n: 1, err: reset}, {n: 1, err: reset}, {n: 1, err: reset}}, opens: 4, want: task.SourceUnreachable, got: 10},
		"stalled for ever":       {acts: []act{{n: 3}, {}, {}, {}}, opens: 4, want: task.SourceUnreachable, got: 3},
		"refused for ever":       {acts: []act{{refuse: reset}, {refuse: reset}, {refuse: reset}, {refuse: reset}}, opens: 4, want: task.SourceUnreachable},
		"gone":                   {acts: []act{{n: 9, err: reset}, {refuse: gone}}, opens: 2, want: task.SourceNotFound, got: 9},
		"changed":                {acts: []act{{n: 9, err: changed}}, opens: 1, want: task.SourceChanged, got: 9},
		"a stream is read once":  {acts: []act{{n: 9, err: reset}}, stream: true, opens: 1, want: task.SourceUnreachable, got: 9},
		"a stream can be opened": {acts: []act{{refuse: reset}}, stream: true, opens: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{p: p, acts: c.acts, stream: c.stream}
				got, err := get(t.Context(), Blob(s, patience))
				want := p
				if c.want != "" {
					want = p[:c.got]
				}
				if (c.want == "") != (err == nil) || c.want != "" && !task.Is(err, c.want) {
					t.Errorf("ended with %v, want %q", err, c.want)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("got %d bytes, want %d", len(got), len(want))
				}
				if len(s.opened) != c.opens {
					t.Errorf("opened at %v, want %d times", s.opened, c.opens)
				}
			})
		})
	}
}

func TestSlowConsumerIsNotAStalledConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{p: make([]byte, 100)}
		r, err := Blob(s, patience).Open(t.Context(), 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for range 10 {
			if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Hour)
		}
		if len(s.opened) != 1 {
			t.Errorf("opened %d times", len(s.opened))
		}
	})
}

func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		start := time.Now()
		p := Policy{Attempts: 8, First: time.Second, Max: 10 * time.Second}
		err := p.Do(t.Context(), func(context.Context) error {
			at = append(at, time.Since(start))
			return reset
		})
		if !task.Is(err, task.SourceUnreachable) || len(at) != 8 {
			t.Fatalf("%d tries ended with %v", len(at), err)
		}
		for i, full := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
			if pause := at[i+1] - at[i]; pause < full*time.Second/2 || pause > full*time.Second {
				t.Errorf("pause %d is %s, want between half of %d s and all of it", i+1, pause, full)
			}
		}
	})
}

func TestServerSaysWhenToComeBack(t *testing.T) {
	for said, want := range map[time.Duration]time.Duration{7 * time.Second: 7 * time.Second, time.Hour: 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start, tries := time.Now(), 0
			err := patience.Do(t.Context(), func(context.Context) error {
				if tries++; tries == 1 {
					return &After{Err: task.Errorf(task.SourceUnavailable, "busy"), Wait: said}
				}
				return nil
			})
			if waited := time.Since(start); err != nil || waited != want {
				t.Errorf("told to wait %s, waited %s, want %s (%v)", said, waited, want, err)
			}
		})
	}
}

func TestCancelEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := patience.Do(ctx, func(context.Context) error { return reset })
		if err == nil || time.Since(start) != 100*time.Millisecond {
			t.Errorf("ended after %s with %v", time.Since(start), err)
		}
	})
}

func TestCancelIsNobodysFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := Blob(&script{p: make([]byte, 10), acts: []act{{n: 1}}}, patience).Open(ctx, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		time.AfterFunc(time.Second, cancel)
		_, err = io.ReadAll(r)
		var e *task.Error
		if !errors.Is(err, context.Canceled) || errors.As(err, &e) {
			t.Errorf("a cancelled reader says %v", err)
		}
	})
}

func TestClosedReader(t *testing.T) {
	r, err := Blob(&script{p: make([]byte, 10)}, patience).Open(t.Context(), 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a closed reader says %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}
