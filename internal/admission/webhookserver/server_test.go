package webhookserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/pki"
)

// serve starts a server whose webhook is answer, and returns its address and a client of it.
func serve(t *testing.T, answer http.HandlerFunc) (string, *http.Client) {
	t.Helper()
	now := time.Now()
	authority, err := pki.New("test", now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Leaf{Name: "test", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Use: x509.ExtKeyUsageServerAuth, Lasts: time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	s := New(Options{
		Address: address, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil },
		Open: func(path string) (string, bool) { return strings.CutPrefix(path, "/word") },
	})
	s.Register("/hook", answer)
	if s.StartedChecker()(nil) == nil {
		t.Error("it says that it has started")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	to := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	for range 100 {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			break
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // it has no other sign that it listens
	}
	return "https://" + address, to
}

// endless is a body that never ends, and counts what is read of it.
type endless struct{ read atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	return len(p), nil
}

// TestNobodyElse: a request without the word is a 404 with nothing else, and what it brings is not read. With the word the webhook answers.
func TestNobodyElse(t *testing.T) {
	at, to := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %d %v", r.URL.Path, len(body), err)
	})
	for _, path := range []string{"/hook", "/", "/other/hook", "/metrics", "/hook?timeout=5s"} {
		body := &endless{}
		answer, err := to.Post(at+path, "application/json", io.LimitReader(body, 64<<20))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusNotFound || len(text) != 0 {
			t.Errorf("%s: %s %q", path, answer.Status, text)
		}
		for name := range answer.Header {
			if name != "Date" && name != "Content-Length" && name != "Connection" {
				t.Errorf("%s: it tells %s", path, name)
			}
		}
		if n := body.read.Load(); n > 4<<20 {
			t.Errorf("%s: %d bytes of the body were taken", path, n)
		}
	}
	for size, want := range map[int]string{0: "/hook 0 <nil>", 100 << 10: "/hook 102400 <nil>", 6 << 20: "/hook 6291456 <nil>"} {
		answer, err := to.Post(at+"/word/hook?timeout=10s", "application/json", bytes.NewReader(make([]byte, size)))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK || string(text) != want {
			t.Errorf("%d bytes: %s %q", size, answer.Status, text)
		}
	}
	answer, err := to.Post(at+"/word/hook", "application/json", bytes.NewReader(make([]byte, mostReview+1)))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a review that is too large: %s", answer.Status)
	}
}

// TestReviewsInFlight: as many large reviews are read at a time as there is room for, the others wait, and who waits too long is told so before the API
// server gives up: what it says then has the path in it.
func TestReviewsInFlight(t *testing.T) {
	began, end := make(chan struct{}, 100), make(chan struct{})
	at, to := serve(t, func(http.ResponseWriter, *http.Request) { began <- struct{}{}; <-end })
	large := make([]byte, 6<<20)
	const fit = mostReviews / (6 << 20)
	answers := make(chan error, 100)
	ask := func(timeout string) {
		answer, err := to.Post(at+"/word/hook?timeout="+timeout, "application/json", bytes.NewReader(large))
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				err = errors.New(answer.Status)
			}
		}
		answers <- err
	}
	for range fit {
		go ask("15s")
	}
	for range fit {
		<-began
	}
	ask("1s")
	if err := <-answers; err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("one more is answered with %v", err)
	}
	if len(began) != 0 {
		t.Error("one more is read")
	}
	close(end)
	for range fit {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	go ask("15s")
	if err := <-answers; err != nil {
		t.Errorf("when there is room again: %v", err)
	}
}

// TestCrowdOfStrangers: connections that never send a request are closed when too many arrive, and do not block a client with a known path.
func TestCrowdOfStrangers(t *testing.T) {
	at, to := serve(t, func(http.ResponseWriter, *http.Request) {})
	ask := func() error {
		answer, err := to.Post(at+"/word/hook", "application/json", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	var crowd []net.Conn
	for range 2 * mostUnknown {
		c, err := net.Dial("tcp", strings.TrimPrefix(at, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		crowd = append(crowd, c)
	}
	if err := ask(); err != nil {
		t.Errorf("with the connection from before: %v", err)
	}
	to.CloseIdleConnections()
	if err := ask(); err != nil {
		t.Errorf("with a new connection: %v", err)
	}
	if err := crowd[0].SetReadDeadline(time.Now().Add(readHeader / 2)); err != nil {
		t.Fatal(err)
	}
	var late net.Error
	if _, err := crowd[0].Read(make([]byte, 1)); errors.As(err, &late) && late.Timeout() {
		t.Error("the first of the crowd is still there")
	}
}
