package streamserver

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berth-vm/berth/internal/containervolume"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/nbdtest"
	"github.com/berth-vm/berth/internal/transfer/lazylayer"
)

// images returns a registry with a container disk for each content; while shut is set it does not answer.
func images(t *testing.T, shut *atomic.Bool, disks ...[]byte) []task.Registry {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shut.Load() {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	var out []task.Registry
	for i, disk := range disks {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: "disk/disk.img", Mode: 0o444, Size: int64(len(disk))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(disk); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		img, err := mutate.AppendLayers(empty.Image, static.NewLayer(b.Bytes(), types.DockerLayer))
		if err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("%s/disks/d%d:latest", strings.TrimPrefix(s.URL, "http://"), i)
		ref, err := name.ParseReference(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, img); err != nil {
			t.Fatal(err)
		}
		out = append(out, task.Registry{URL: "docker://" + at, PlainHTTP: true})
	}
	return out
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve runs a server until the test ends.
func serve(t *testing.T, c Config, l Listeners) *Server {
	t.Helper()
	c.Target, c.CacheDir, c.CacheLimit, c.Log = "iqn.2026-01.dev.berth:test", t.TempDir(), lazylayer.LeastCache, t.Logf
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.pause = 50 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("it ended: %v", err)
		}
	})
	return s
}

// ask puts a question until the status is no longer the one that says "not yet".
func ask(t *testing.T, c *http.Client, method, url, body string, notYet int) (int, string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { //nolint:forbidigo // as the caller does
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != notYet || time.Now().After(end) {
			return answer.StatusCode, string(text)
		}
	}
}

// TestNBDAndHealth: the same disks are exports of an NBD server, and the caller is told when they are there and what they are
// worth.
func TestNBDAndHealth(t *testing.T) {
	var shut atomic.Bool
	disks := [][]byte{bytes.Repeat([]byte("a"), 1<<20), bytes.Repeat([]byte("b"), 2<<20)}
	socket := filepath.Join(t.TempDir(), "nbd")
	l := Listeners{ISCSI: listen(t, "tcp", "127.0.0.1:0"), NBD: listen(t, "unix", socket), Health: listen(t, "tcp", "127.0.0.1:0")}
	s := serve(t, Config{Images: images(t, &shut, disks...)}, l)
	at := "http://" + l.Health.Addr().String() + "/healthz"
	if code, text := ask(t, http.DefaultClient, http.MethodGet, at, "", http.StatusServiceUnavailable); code != http.StatusOK || strings.Count(text, "not yet verified") != 2 {
		t.Errorf("%d: %s", code, text)
	}
	for name, want := range map[string][]byte{"": disks[0], "0": disks[0], "1": disks[1]} {
		d := s.export(name)
		if d == nil || d.Size() != int64(len(want)) {
			t.Errorf("export %q: %v", name, d)
		}
	}
	for _, none := range []string{"2", "-1", "x", "00000000000000000000000"} {
		if s.export(none) != nil {
			t.Errorf("there is an export %q", none)
		}
	}
	c, err := nbdtest.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4096)
	if _, err := c.ReadAt(p, 0); err != nil || !bytes.Equal(p, disks[0][:4096]) {
		t.Errorf("read: %v", err)
	}
	if err := c.Leave(); err != nil {
		t.Error(err)
	}
	s.disks[0].disk.Settled()
	if _, text := ask(t, http.DefaultClient, http.MethodGet, at, "", 0); !strings.Contains(text, "digest is right") {
		t.Errorf("%s", text)
	}
}

// keys writes what a container that makes volumes is given, and returns a client that may ask it.
func keys(t *testing.T) (dir string, allowed *http.Client) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, text := range map[string][]byte{"tls.crt": cert, "ca.crt": cert, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	own := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13}}
	t.Cleanup(transport.CloseIdleConnections)
	return dir, &http.Client{Transport: transport}
}

// TestVolume: as a container that makes volumes it answers with its LUN when that is there, says why if it is not, and to no one
// else.
func TestVolume(t *testing.T) {
	var shut atomic.Bool
	dir, allowed := keys(t)
	l := Listeners{ISCSI: listen(t, "tcp", "127.0.0.1:0"), Volume: listen(t, "tcp", "127.0.0.1:0")}
	found := images(t, &shut, bytes.Repeat([]byte("a"), 1<<20))
	shut.Store(true)
	serve(t, Config{Images: found, Volume: Volume{Keys: dir, Host: "10.0.0.1", Port: "3260", Secret: "login"}}, l)
	at, question := "https://"+l.Volume.Addr().String()+"/volume", `{"namespace":"n","machine":"m","uid":"u","volume":"root"}`
	if code, text := ask(t, allowed, http.MethodPut, at, question, http.StatusAccepted); code != http.StatusServiceUnavailable || !strings.Contains(text, "404") {
		t.Errorf("%d: %s", code, text)
	}
	shut.Store(false)
	const want = `{"iscsi":{"host":{"name":"10.0.0.1","port":"3260"},"lun":0,"portal":"iqn.2026-01.dev.berth:test","secretRef":{"name":"login"}}}` + "\n"
	if code, text := ask(t, allowed, http.MethodPut, at, question, http.StatusServiceUnavailable); code != http.StatusOK || text != want {
		t.Errorf("%d: %s", code, text)
	} else if made, err := containervolume.Read([]byte(text)); err != nil || made.ISCSI == nil || made.ISCSI.SecretRef.Name != "login" {
		t.Errorf("its client cannot use it: %v", err)
	}
	if code, text := ask(t, allowed, http.MethodDelete, at, question, 0); code != http.StatusOK {
		t.Errorf("%d: %s", code, text)
	}
	for _, bad := range []string{"", "{", "{}", `{"uid":1}`} {
		if code, _ := ask(t, allowed, http.MethodPut, at, bad, 0); code != http.StatusBadRequest {
			t.Errorf("%q is answered with %d", bad, code)
		}
	}
	stranger := allowed.Transport.(*http.Transport).Clone()
	stranger.TLSClientConfig.Certificates = nil
	defer stranger.CloseIdleConnections()
	if answer, err := (&http.Client{Transport: stranger}).Get(at); err == nil {
		_ = answer.Body.Close()
		t.Error("a stranger is answered")
	}
}
