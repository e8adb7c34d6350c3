package minrate_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/upload/minrate"
)

// after reads the whole body, then waits and says whether the client is still taken for there.
func after(t *testing.T, limit minrate.Limit, wait time.Duration, body io.Reader) (read error, gone bool) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, read = io.Copy(io.Discard, minrate.Body(w, r, limit))
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
			read, gone := after(t, minrate.Limit{Window: time.Second, Bytes: 1}, 1200*time.Millisecond, body)
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
	read, _ := after(t, minrate.Limit{Window: 50 * time.Millisecond, Bytes: 100}, 0, r)
	if !errors.Is(read, minrate.ErrSlow) {
		t.Errorf("got %v", read)
	}
}

// TestALargeChunkIsNotWaitedFor: net/http fills a buffer as long as a chunk lasts. What is enough is enough.
func TestALargeChunkIsNotWaitedFor(t *testing.T) {
	first := make(chan int, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := minrate.Body(w, r, minrate.Limit{Window: time.Second, Bytes: 4})
		n, err := body.Read(make([]byte, 100))
		first <- n
		if err == nil {
			_, err = io.Copy(io.Discard, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestTimeout)
		}
	}))
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: it\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndisk") // the answer tells
	if n := <-first; n != 4 {
		t.Errorf("the first read brought %d bytes", n)
	}
	_, _ = io.WriteString(c, "disk\r\n0\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("the answer is %s", answer.Status)
	}
}
