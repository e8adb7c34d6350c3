package transfer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/disktest"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/peer"
	"github.com/berth-vm/berth/internal/transfer/volumeserver"
)

// tlsDir makes a directory with a certificate for this machine and the authority that signed it.
func tlsDir(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "worker"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, b := range map[string][]byte{"tls.crt": cert, "ca.crt": cert,
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// serve serves path until the test ends and returns the peer's URL.
func serve(t *testing.T, path string, content task.Content, tls string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	addr, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		done <- volumeserver.Serve(ctx, task.Serve{Version: task.Version, Volume: "ns/source", Path: path, Content: content,
			Listen: "127.0.0.1:0", TLSDir: tls}, func(a net.Addr) { addr <- a })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	select {
	case a := <-addr:
		return "https://" + a.String()
	case err := <-done:
		done <- err
		t.Fatal(err)
		return ""
	}
}

// sparse writes a file of which zero pages are holes.
func sparse(t *testing.T, p []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	d, err := sink.Open(sink.Options{Path: path})
	if err == nil {
		err = d.Begin(int64(len(p)), false)
	}
	if err == nil {
		_, err = d.WriteAt(p, 0)
	}
	if err == nil {
		err = errors.Join(d.Finish(), d.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCloneFromPeer(t *testing.T) {
	// A disk that begins like an image: a tenant's bytes are never taken for one.
	want := append(disktest.QCOW2(t, disktest.Text(1<<20, 1), 1, false, false), disktest.Noise(40<<20, 3)...)
	from := sparse(t, want)
	tls := tlsDir(t)
	to := filepath.Join(t.TempDir(), "disk.img")
	k := fromURL("", to)
	k.Source = task.Source{Peer: &task.Peer{URL: serve(t, from, task.Disk, tls), TLSDir: tls}}

	// A first run that breaks off is continued.
	blob, err := peer.Open(t.Context(), *k.Source.Peer)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if r := New(k).RunFrom(ctx, &breaking{blob.(source.Sparse), 30 << 20, cancel}); r.Reason != task.Interrupted {
		t.Fatalf("report of the interrupted run: %+v", r)
	}
	r := New(k).Run(t.Context())
	if r.Outcome != task.Done || r.Format != "raw" || r.Resumed == 0 {
		t.Fatalf("report %+v", r)
	}
	wantDisk(t, to, want, len(want))
	if r.Read > int64(len(want))-r.Resumed {
		t.Errorf("%d bytes read of %d although %d were done", r.Read, len(want), r.Resumed)
	}
}

func TestClonedPeerMustBeTheSame(t *testing.T) {
	from := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(from, disktest.Noise(3<<20, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	tls := tlsDir(t)
	url := serve(t, from, task.Disk, tls)
	for name, dir := range map[string]string{"another authority": tlsDir(t), "none": t.TempDir()} {
		k := fromURL("", filepath.Join(t.TempDir(), "disk.img"))
		k.Source = task.Source{Peer: &task.Peer{URL: url, TLSDir: dir}}
		if r := New(k).Run(t.Context()); r.Outcome != task.Retry {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r, err := http.Get(strings.Replace(url, "https", "http", 1) + peerproto.VolumePath); err == nil && r.StatusCode == http.StatusOK {
		t.Error("served without TLS")
	}
}

func TestCloneLocal(t *testing.T) {
	want := append(disktest.QCOW2(t, disktest.Text(1<<20, 1), 1, false, false), make([]byte, 9<<20+1000)...)
	copy(want[8<<20:], disktest.Noise(1<<20, 3))
	from := sparse(t, want)
	to := filepath.Join(t.TempDir(), "disk.img")
	r := New(task.Task{Version: task.Version, Source: task.Source{Local: &task.Local{Path: from, Raw: true}},
		Target: task.Target{Path: to, Content: task.Disk, Size: 16 << 20}}).Run(t.Context())
	if r.Outcome != task.Done || r.Format != "raw" {
		t.Fatalf("report %+v", r)
	}
	wantDisk(t, to, want, 16<<20)
}

// breaking is a blob that ends the transfer when a certain byte is asked for.
type breaking struct {
	source.Sparse
	at   int64
	stop func()
}

func (b *breaking) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	if off+n > b.at {
		b.stop()
		return nil, ctx.Err()
	}
	return b.Sparse.Open(ctx, off, n)
}
