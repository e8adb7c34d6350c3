package pace_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/upload/pace"
)

// after reads the whole body, then waits and says whether the client is still taken for there.
func after(t *testing.T, limit pace.Limit, wait time.Duration, body io.Reader) (read error, gone bool) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, read = io.Copy(io.Discard, pace.Body(w, r, limit))
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			gone = true
		}
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := http.DefaultClient.Do(req); err == nil {
		_ = answer.Body.Close()
	}
	s.Close() // waits for the handler
	return read, gone
}

// TestTheAnswerMayTake: once everything is there the limit is over, however long the server takes to answer.
func TestTheAnswerMayTake(t *testing.T) {
	for name, body := range map[string]io.Reader{
		"of known length": strings.NewReader("disk"), "in chunks": struct{ io.Reader }{strings.NewReader("disk")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, gone := after(t, pace.Limit{Window: time.Second, Bytes: 1}, 1200*time.Millisecond, body)
			if read != nil || gone {
				t.Errorf("read %v, the client gone: %v", read, gone)
			}
		})
	}
}

func TestDripping(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = w.Write([]byte("drip")) }()
	read, _ := after(t, pace.Limit{Window: 50 * time.Millisecond, Bytes: 100}, 0, r)
	if !errors.Is(read, pace.ErrSlow) {
		t.Errorf("got %v", read)
	}
}
