package peer

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.sign(t, tmpl)
	return a
}

// sign makes a certificate, signed by a or, if a has no certificate yet, by itself.
func (a *authority) sign(t *testing.T, tmpl *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// mount returns a TLSDir with a certificate for this machine; ca is the authority that it trusts.
func (a *authority) mount(t *testing.T, ca *authority) string {
	t.Helper()
	cert, key := a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: cert.Raw}, "tls.key": {Type: "PRIVATE KEY", Bytes: der},
		"ca.crt": {Type: "CERTIFICATE", Bytes: ca.cert.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// server returns the TLS configuration of a peer.
func (a *authority) server(t *testing.T) *tls.Config {
	t.Helper()
	dir := a.mount(t, a)
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

// volume serves a disk as the package comment of wire says.
type volume struct {
	content  atomic.Pointer[[]byte]
	version  atomic.Int64
	diskless bool
	unframed bool
	extents  func(from, to int64) any // nil: it cannot tell
}

func (v *volume) put(_ *testing.T, b []byte) {
	v.content.Store(&b)
	v.version.Add(1)
}

func (v *volume) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	b := *v.content.Load()
	etag := fmt.Sprintf("%q", strconv.FormatInt(v.version.Load(), 10))
	switch {
	case r.URL.Path == peerproto.ExtentsPath && v.extents != nil:
		from, _ := strconv.ParseInt(r.FormValue("from"), 10, 64)
		to, _ := strconv.ParseInt(r.FormValue("to"), 10, 64)
		_ = json.NewEncoder(w).Encode(v.extents(from, to))
		return
	case r.URL.Path != peerproto.VolumePath:
		nethttp.NotFound(w, r)
		return
	case v.diskless:
		w.Header().Set(peerproto.ContentHeader, peerproto.OnlyFiles)
		return
	}
	w.Header().Set(peerproto.ContentHeader, string(task.Disk))
	w.Header().Set("ETag", etag)
	if r.Method == nethttp.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		return
	}
	if r.Header.Get("If-Match") != etag {
		w.WriteHeader(nethttp.StatusPreconditionFailed)
		return
	}
	var first, last int
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err != nil {
		_, _ = w.Write(b)
		return
	}
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(b)))
	if v.unframed {
		w.WriteHeader(nethttp.StatusPartialContent)
		_, _ = w.Write(b[first : last+1])
		return
	}
	w.Header().Set("Content-Type", peerproto.FramesType)
	w.WriteHeader(nethttp.StatusPartialContent)
	frames, err := peerproto.NewWriter(w)
	if err == nil {
		_, _ = frames.Write(b[first : last+1]) // the client sees what is missing
	}
}

func harness(v *volume) func(*testing.T) sourcetest.Harness {
	return func(t *testing.T) sourcetest.Harness {
		ca, other := newAuthority(t), newAuthority(t)
		v := &volume{unframed: v.unframed}
		get := func(dir string) func(*testing.T, string) (source.Blob, error) {
			return func(t *testing.T, base string) (source.Blob, error) {
				t.Helper()
				return open(t.Context(), task.Peer{URL: base, TLSDir: dir}, sourcetest.Patience)
			}
		}
		return sourcetest.Harness{
			Server: v, TLS: ca.server(t), Put: v.put,
			Data: func(r *nethttp.Request) bool {
				return r.Method == nethttp.MethodGet && r.URL.Path == peerproto.VolumePath
			},
			Open: get(ca.mount(t, ca)), OpenWrong: get(other.mount(t, ca)),
			OpenMissing: func(t *testing.T, _ string) (source.Blob, error) {
				s := httptest.NewUnstartedServer(nethttp.NotFoundHandler())
				s.TLS = ca.server(t)
				s.StartTLS()
				defer s.Close()
				return get(ca.mount(t, ca))(t, s.URL)
			},
		}
	}
}

func TestConformance(t *testing.T) { sourcetest.Serve(t, harness(&volume{})) }

func TestConformanceWithoutFrames(t *testing.T) {
	sourcetest.Serve(t, harness(&volume{unframed: true}))
}

// serve starts a peer and opens what it serves.
func serve(t *testing.T, v *volume, trusted func(ca *authority) *authority) (source.Blob, error) {
	t.Helper()
	ca := newAuthority(t)
	s := httptest.NewUnstartedServer(v)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are meant to end so
	s.TLS = ca.server(t)
	s.StartTLS()
	t.Cleanup(s.Close)
	return open(t.Context(), task.Peer{URL: s.URL, TLSDir: ca.mount(t, trusted(ca))}, sourcetest.Patience)
}

func own(ca *authority) *authority { return ca }

func TestServerOfAnotherAuthority(t *testing.T) {
	v := &volume{}
	v.put(t, nil)
	_, err := serve(t, v, func(*authority) *authority { return newAuthority(t) })
	sourcetest.Fails(t, err, task.SourceUntrusted)
}

func TestOnlyFiles(t *testing.T) {
	v := &volume{diskless: true}
	v.put(t, nil)
	_, err := serve(t, v, own)
	if !errors.Is(err, source.ErrNoDisk) {
		t.Errorf("a volume without a disk: %v", err)
	}
	sourcetest.Fails(t, err, task.BadImage)
}

func TestZeroesAreNotSent(t *testing.T) {
	v := &volume{}
	content := make([]byte, 10<<20)
	copy(content[5<<20:], "data")
	v.put(t, content)
	b, err := serve(t, v, own)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	got, err := sourcetest.Get(t.Context(), b, 0, -1)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func TestData(t *testing.T) {
	for name, c := range map[string]struct {
		extents func(from, to int64) any
		want    [][2]int64
		reason  task.Reason
	}{
		"some":         {func(int64, int64) any { return [][2]int64{{10, 5}, {20, 1}} }, [][2]int64{{10, 5}, {20, 1}}, ""},
		"none":         {func(int64, int64) any { return [][2]int64{} }, [][2]int64{}, ""},
		"cannot tell":  {nil, [][2]int64{{2, 98}}, ""},
		"out of order": {func(int64, int64) any { return [][2]int64{{20, 5}, {10, 5}} }, nil, task.SourceUnavailable},
		"outside":      {func(int64, int64) any { return [][2]int64{{90, 50}} }, nil, task.SourceUnavailable},
		"no list":      {func(int64, int64) any { return "all" }, nil, task.SourceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			v := &volume{extents: c.extents}
			v.put(t, make([]byte, 1000))
			b, err := serve(t, v, own)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			got, err := b.(source.Sparse).Data(t.Context(), 2, 100)
			if c.reason != "" {
				sourcetest.Fails(t, err, c.reason)
			} else if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestPeersThatMakeNoSense(t *testing.T) {
	for _, url := range []string{"", "http://h", "https://", "https://h\x00"} {
		_, err := open(t.Context(), task.Peer{URL: url, TLSDir: t.TempDir()}, sourcetest.Patience)
		sourcetest.Fails(t, err, task.BadTask)
	}
	_, err := open(t.Context(), task.Peer{URL: "https://h", TLSDir: t.TempDir()}, sourcetest.Patience)
	sourcetest.Fails(t, err, task.SourceUntrusted)
}
