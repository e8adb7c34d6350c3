//go:build host

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/upload/minrate"
)

// alone is the environment variable that makes this program a proxy and nothing else, so that its memory can be told from
// the test's.
const alone = "BERTH_TEST_PROXY"

// lone holds the options of such a proxy.
type lone struct {
	Client, Server string // directories of certificates
	Key            ed25519.PublicKey
	Worker         string // address
}

func TestMain(m *testing.M) {
	if told := os.Getenv(alone); told != "" {
		fmt.Fprintln(os.Stderr, serveAlone(told))
		os.Exit(1)
	}
	m.Run()
}

// serveAlone serves as cmd/uploadproxy does until it is killed.
func serveAlone(told string) error {
	var l lone
	if err := json.Unmarshal([]byte(told), &l); err != nil {
		return err
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, at.Addr()) // who started it reads it
	s := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		Handler: New(Options{
			Find: func(_ context.Context, c token.Claim) (Worker, error) {
				return Worker{Claim: c, Address: l.Worker, Name: "worker"}, nil
			},
			Keys: func() []ed25519.PublicKey { return []ed25519.PublicKey{l.Key} }, Dial: NewDialer(l.Client),
			Places: DefaultPlaces, Patience: DefaultPatience, Pace: minrate.Default, Log: slog.New(slog.DiscardHandler),
		}),
	}
	return s.ServeTLS(at, filepath.Join(l.Server, "tls.crt"), filepath.Join(l.Server, "tls.key"))
}

// start makes this program a proxy, and returns its address and process.
func (l lone) start(t *testing.T) (url string, pid int) {
	t.Helper()
	told, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), alone+"="+string(told)), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the proxy did not start: %v", err)
	}
	return "https://" + strings.TrimSpace(line), cmd.Process.Pid
}

// peak returns the most memory a process ever had.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kib int64
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Fatalf("no VmHWM in %s", b)
	return 0
}

// swallower returns a worker that takes whatever the proxy sends it and keeps nothing.
func swallower(t *testing.T, h *house) string {
	t.Helper()
	dir := h.certificate(pki.Leaf{Name: "worker", DNSNames: []string{"worker"}, Use: x509.ExtKeyUsageServerAuth, Lasts: time.Hour})
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, make([]byte, 1<<20)) // the client sees how it ends
	})}
	go func() { _ = s.Serve(at) }()
	t.Cleanup(func() { _ = s.Close() })
	return at.Addr().String()
}

// TestMemory: neither the size of an upload nor how many there are shows in the proxy's memory beyond what is said here.
func TestMemory(t *testing.T) {
	h := newHouse(t, nil)
	url, pid := lone{
		Client: h.client, Worker: swallower(t, h), Key: h.key.Public().(ed25519.PublicKey),
		Server: h.certificate(pki.Leaf{Name: "proxy", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Use: x509.ExtKeyUsageServerAuth, Lasts: time.Hour}),
	}.start(t)
	pool := x509.NewCertPool()
	pool.AddCert(h.authority.Certificate())
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}, DisableKeepAlives: true, WriteBufferSize: 64 << 10,
	}}
	proof := h.token("disk", time.Hour)
	send := func(body io.Reader) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1beta1/upload", body)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+proof)
		answer, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("an upload was answered %s", answer.Status)
		}
	}
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	send(repeat(data, 64))
	small := peak(t, pid)
	send(repeat(data, 2048))
	large := peak(t, pid)
	if grown := large - small; grown > 8<<20 {
		t.Errorf("2 GiB took %d bytes more than 64 MiB, which took %d", grown, small)
	}

	const uploads = 50
	var all, half sync.WaitGroup
	half.Add(uploads)
	for range uploads {
		all.Go(func() {
			send(io.MultiReader(repeat(data, 4), &meet{&half}, repeat(data, 4)))
		})
	}
	all.Wait()
	many := peak(t, pid)
	if grown := many - large; grown > uploads<<20 {
		t.Errorf("%d uploads at once took %d bytes more than one, which took %d", uploads, grown, large)
	}
	t.Logf("peak after 64 MiB: %d MiB, after 2 GiB: %d MiB, after %d uploads at once: %d MiB", small>>20, large>>20, uploads, many>>20)
}

// meet is a place in a body that is passed when every body has reached it.
type meet struct{ all *sync.WaitGroup }

func (m *meet) Read([]byte) (int, error) {
	m.all.Done()
	m.all.Wait()
	return 0, io.EOF
}

// repeat reads as many copies of data.
func repeat(data []byte, times int) io.Reader {
	copies := make([]io.Reader, times)
	for i := range copies {
		copies[i] = bytes.NewReader(data)
	}
	return io.MultiReader(copies...)
}
