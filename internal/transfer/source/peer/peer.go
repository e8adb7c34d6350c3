// Package peer reads the volume that another worker serves, over mutual TLS, in the protocol of package peerproto: zeroes
// are not sent, and what compresses is sent compressed. The server must bear a certificate that the task's ca.crt
// signed for the host in the URL. It does not serve anything and does not know what the volume holds.
package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	nethttp "net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/fault"
	"github.com/berth-vm/berth/internal/transfer/source/httpaccess"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// Open asks the peer what it serves. The blob of a disk is ranged and a source.Sparse; source.ErrNoDisk is in the error if there are
// only files.
func Open(ctx context.Context, t task.Peer) (source.Blob, error) { return open(ctx, t, retry.Default) }

// dial returns a peer to which no request was sent yet.
func dial(t task.Peer) (*blob, error) {
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, task.Errorf(task.BadTask, "%q is no https:// URL of a peer", t.URL)
	}
	base := &url.URL{Scheme: u.Scheme, Host: u.Host}
	transport, err := transport(t.TLSDir)
	if err != nil {
		return nil, err
	}
	b := &blob{base: base, client: &nethttp.Client{Transport: transport, CheckRedirect: noRedirect}}
	b.info.Name = base.JoinPath(peerproto.VolumePath).String()
	return b, nil
}

func open(ctx context.Context, t task.Peer, p retry.Policy) (source.Blob, error) {
	b, err := dial(t)
	if err != nil {
		return nil, err
	}
	err = p.Do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, p.Idle)
		defer cancel()
		return b.head(ctx)
	})
	if err != nil {
		b.client.CloseIdleConnections()
		return nil, err
	}
	return &disk{Blob: retry.Blob(b, p), blob: b, policy: p}, nil
}

// transport is one that shows our certificate and trusts none but the task's CA.
func transport(dir string) (*nethttp.Transport, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, task.Errorf(task.SourceUntrusted, "load the certificate to show to the peer: %w", err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, task.Errorf(task.SourceUntrusted, "load the certificate authority of the peer: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, task.Errorf(task.SourceUntrusted, "ca.crt holds no PEM certificate")
	}
	t, err := httpaccess.Transport(task.Access{})
	if err != nil {
		return nil, err
	}
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{cert}}
	// Both ends are in one cluster: what does not answer at once is not there.
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	return t, nil
}

func noRedirect(*nethttp.Request, []*nethttp.Request) error { return nethttp.ErrUseLastResponse }

// blob is a blob that makes one attempt for each read; package retry adds the others.
type blob struct {
	base   *url.URL
	client *nethttp.Client
	info   source.Info
	etag   string
}

func (b *blob) Info() source.Info { return b.info }

func (b *blob) Close() error {
	b.client.CloseIdleConnections()
	return nil
}

// do sends a request; the caller closes the body of the answer.
func (b *blob) do(ctx context.Context, method string, u *url.URL, set map[string]string) (*nethttp.Response, error) {
	req, err := nethttp.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, task.Errorf(task.BadTask, "request %s: %w", b.info.Name, err)
	}
	req.Header.Set("User-Agent", httpaccess.UserAgent)
	for k, v := range set {
		req.Header.Set(k, v)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, fault.Wire(b.info.Name, err)
	}
	return resp, nil
}

// head asks what the peer serves.
func (b *blob) head(ctx context.Context) error {
	resp, err := b.do(ctx, nethttp.MethodHead, b.base.JoinPath(peerproto.VolumePath), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != nethttp.StatusOK {
		return fault.Status(b.info.Name, resp.StatusCode)
	}
	switch content := resp.Header.Get(peerproto.ContentHeader); content {
	case peerproto.OnlyFiles:
		return task.Errorf(task.BadImage, "%w: the source has files, but no %s; a volume without one can only be cloned to a filesystem",
			source.ErrNoDisk, task.DiskFile)
	case string(task.Disk):
		b.etag = resp.Header.Get("ETag")
		if resp.ContentLength < 0 || b.etag == "" {
			return task.Errorf(task.SourceUnavailable, "%s says neither size nor version of its disk", b.info.Name)
		}
		b.info.Size, b.info.Ranged, b.info.Version = resp.ContentLength, true, "peer:"+b.etag
		if strings.HasPrefix(b.etag, `"device-`) {
			b.info.Passing = "is a device, of which nothing proves that it is the same after its server was started again"
		}
		return nil
	default:
		return task.Errorf(task.SourceUnavailable, "%s serves %q: it is no worker of this version", b.info.Name, content)
	}
}

func (b *blob) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	n, err := b.info.Span(off, n)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nethttp.NoBody, nil
	}
	return b.span(ctx, off, n)
}
