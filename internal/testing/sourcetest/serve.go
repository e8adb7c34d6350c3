package sourcetest

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// Patience is short enough for tests. Idle is how long a stalled connection waits, and it is still so long that a loaded machine
// does not take a working connection for a dead one more often than Attempts allows.
var Patience = retry.Policy{Attempts: 4, First: time.Millisecond, Max: 4 * time.Millisecond, Idle: 3 * time.Second}

// Harness is a real server with one blob, and the source that reads it.
type Harness struct {
	Server http.Handler
	TLS    *tls.Config // nil: plain HTTP
	// Put makes the server hold other bytes from now on, under another version.
	Put func(t *testing.T, content []byte)
	// Data tells requests for the blob's bytes from those around it.
	Data func(*http.Request) bool
	// Open opens the blob of the server at this base URL ("http://127.0.0.1:1234") with Patience.
	Open func(t *testing.T, base string) (source.Blob, error)
	// Fixed says that a blob is named by its digest: an open one goes on to give the bytes it began with.
	Fixed bool
	// OpenWrong does so with credentials that the server refuses, and OpenMissing opens a blob that is not there.
	OpenWrong, OpenMissing func(t *testing.T, base string) (source.Blob, error)
}

// fixture is a harness whose server runs.
type fixture struct {
	Harness
	front   *Front
	url     string
	content []byte
}

// Serve runs Read and everything that can happen between a source and its server. start makes a server of its own for
// each check.
func Serve(t *testing.T, start func(t *testing.T) Harness) {
	t.Helper()
	lay := func(t *testing.T) *fixture {
		t.Helper()
		t.Parallel()
		return lay(t, start(t))
	}
	t.Run("read", func(t *testing.T) {
		b := lay(t)
		Read(t, b.content, b.open)
	})
	t.Run("read in small pieces", func(t *testing.T) {
		b := lay(t)
		b.front.Always(Dribble(1000))
		Same(t, b.open(t), 0, -1, b.content)
	})
	for name, check := range map[string]func(*testing.T, *fixture){
		"reset in the middle": mended(Reset(100_000)), "truncated body": mended(Truncate(100_000)),
		"stalled connection": mended(Stall(100_000)), "overloaded server": mended(Answer(503)),
		"too many requests": mended(Answer(429)), "no answer": mended(Stall(0)),
		"reset for ever": hopeless(Reset(1000), task.SourceUnreachable), "truncated for ever": hopeless(Truncate(1000), task.SourceTruncated),
		"stalled for ever": hopeless(Stall(1000), task.SourceUnreachable), "broken server": hopeless(Answer(500), task.SourceUnavailable),
		"vanished": hopeless(Answer(404), task.SourceNotFound), "denied": hopeless(Answer(403), task.SourceDenied),
		"range refused": hopeless(NoRange, task.SourceUnavailable),
		"changed":       changed, "connections are used again": reuse,
	} {
		t.Run(name, func(t *testing.T) { check(t, lay(t)) })
	}
	t.Run("not found", func(t *testing.T) {
		b := lay(t)
		_, err := b.OpenMissing(t, b.url)
		Fails(t, err, task.SourceNotFound)
	})
	t.Run("wrong credentials", func(t *testing.T) {
		b := lay(t)
		_, err := b.OpenWrong(t, b.url)
		Fails(t, err, task.SourceDenied)
	})
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		h := start(t)
		s := h.serve(http.NotFoundHandler(), nil)
		s.Close()
		_, err := h.Open(t, s.URL)
		Fails(t, err, task.SourceUnreachable)
	})
}

func lay(t *testing.T, h Harness) *fixture {
	t.Helper()
	b := &fixture{Harness: h, front: &Front{Server: h.Server, Data: h.Data}, content: Content(1, 1_000_003)}
	h.Put(t, b.content)
	s := h.serve(b.front, b.front.Conn)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	b.url = s.URL
	return b
}

// serve starts a server.
func (h *Harness) serve(handler http.Handler, state func(net.Conn, http.ConnState)) *httptest.Server {
	s := httptest.NewUnstartedServer(handler)
	s.Config.ConnState = state
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of the faults that were asked for
	if s.TLS = h.TLS; h.TLS != nil {
		s.StartTLS()
	} else {
		s.Start()
	}
	return s
}

func (b *fixture) open(t *testing.T) source.Blob {
	t.Helper()
	blob, err := b.Open(t, b.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := blob.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return blob
}

// mended checks that a fault which happens now and then is not seen by who reads.
func mended(f Fault) func(*testing.T, *fixture) {
	return func(t *testing.T, b *fixture) {
		blob := b.open(t)
		b.front.Then(f, f, Pass, f)
		Same(t, blob, 10, 500_000, b.content[10:500_010])
		Same(t, blob, 500_010, -1, b.content[500_010:])
	}
}

// hopeless checks how a permanent fault is reported, and that no wrong bytes were handed over before.
func hopeless(f Fault, want task.Reason) func(*testing.T, *fixture) {
	return func(t *testing.T, b *fixture) {
		blob := b.open(t)
		b.front.Always(f)
		got, err := Get(t.Context(), blob, 10, 500_000)
		Fails(t, err, want)
		if !bytes.HasPrefix(b.content[10:], got) {
			t.Errorf("the %d bytes before the error are wrong", len(got))
		}
		b.front.Always(nil)
		Same(t, blob, 10, 500_000, b.content[10:500_010])
	}
}

// changed checks that bytes of two versions are never mixed, not even when the connection breaks in between.
func changed(t *testing.T, b *fixture) {
	blob := b.open(t)
	Same(t, blob, 0, 1000, b.content[:1000])
	other := Content(2, len(b.content))
	b.front.Then(func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		Truncate(100_000)(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			server.ServeHTTP(w, r)
			b.Put(t, other)
		}))
	})
	if b.Fixed {
		Same(t, blob, 0, -1, b.content)
	} else {
		got, err := Get(t.Context(), blob, 0, -1)
		Fails(t, err, task.SourceChanged)
		if !bytes.HasPrefix(b.content, got) {
			t.Errorf("the %d bytes before the error are not of the first version", len(got))
		}
		_, err = Get(t.Context(), blob, 5000, 1000)
		Fails(t, err, task.SourceChanged)
	}
	fresh := b.open(t)
	if fresh.Info().Version == blob.Info().Version {
		t.Errorf("both versions are called %q", fresh.Info().Version)
	}
	Same(t, fresh, 0, -1, other)
}

// reuse checks that one connection serves many ranges.
func reuse(t *testing.T, b *fixture) {
	blob := b.open(t)
	before := b.front.Connections()
	for i := range int64(50) {
		Same(t, blob, i*1000, 1000, b.content[i*1000:(i+1)*1000])
	}
	if more := b.front.Connections() - before; more > 5 {
		t.Errorf("50 ranges one after another took %d connections", more)
	}
}
