package proxy

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
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-vm/berth/internal/upload/minrate"
	"github.com/berth-vm/berth/internal/upload/tlsbatch"
	"github.com/berth-vm/berth/internal/upload/tus"
)

// Dialer connects to workers with the proxy's certificate, and verifies theirs.
type Dialer struct {
	dir  string // tls.crt, tls.key and ca.crt, read for every connection because they are renewed
	http *http.Transport
}

// NewDialer uses the certificate in dir.
func NewDialer(dir string) *Dialer {
	d := &Dialer{dir: dir}
	d.http = &http.Transport{
		DialTLSContext: d.dial, DisableKeepAlives: true, // every request finds its worker again
		ResponseHeaderTimeout: 0, // the answer to the last byte waits for the disk
		ExpectContinueTimeout: time.Second, WriteBufferSize: writeBuffer,
	}
	return d
}

// writeBuffer is the size of a write, which is encrypted and sent as one.
const writeBuffer = 64 << 10

type workerKey struct{}

// dial connects to the worker of the request.
func (d *Dialer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	w, ok := ctx.Value(workerKey{}).(Worker)
	if !ok {
		return nil, errors.New("dial a worker: none was named")
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(d.dir, "tls.crt"), filepath.Join(d.dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read the proxy's certificate for workers: %w", err)
	}
	pem, err := os.ReadFile(filepath.Join(d.dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the authority of workers: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", filepath.Join(d.dir, "ca.crt"))
	}
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, network, w.Address)
	if err != nil {
		return nil, err
	}
	return tlsbatch.Client(ctx, raw, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: w.Name,
		NextProtos: []string{"http/1.1"},
	})
}

// dialPatience is how long a worker may take to accept a connection.
const dialPatience = 10 * time.Second

// forward hands a request to a worker and its answer back.
func (p *proxy) forward(w http.ResponseWriter, r *http.Request, to Worker, path string) {
	start := time.Now()
	body := &counter{ReadCloser: r.Body, meter: p.Meter}
	if r.Body != nil {
		r.Body = body
	}
	out := &httputil.ReverseProxy{
		Transport: p.Dial.http,
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.URL.Scheme, out.Out.URL.Host, out.Out.URL.Path, out.Out.URL.RawPath = "https", to.Name, path, ""
			out.Out.Host = to.Name
			out.Out.Header.Del("Authorization") // the worker knows the proxy, and needs no token
			if out.Out.Body != nil {
				out.Out.Body = gathered{out.Out.Body}
			}
			out.Out = out.Out.WithContext(context.WithValue(out.Out.Context(), workerKey{}, to))
		},
		ModifyResponse: func(answer *http.Response) error {
			if id, ok := strings.CutPrefix(answer.Header.Get("Location"), tus.Path+"/"); ok {
				answer.Header.Set("Location", tus.Path+"/"+to.Claim.UID+idSeparator+id)
			}
			p.note(r, to, body, answer, time.Since(start))
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { p.broken(w, r, to, body, err) },
	}
	out.ServeHTTP(w, r)
}

// wordsMax is the most that is shown of a worker's answer.
const wordsMax = 1 << 10

// note logs a worker's answer, and sends an event to the owner if the upload failed. If the client has disconnected, the worker's
// answer does not count.
func (p *proxy) note(r *http.Request, to Worker, body *counter, answer *http.Response, took time.Duration) {
	n := body.n.Load()
	log := p.Log.With("method", r.Method, "namespace", to.Claim.Namespace, "claim", to.Claim.Name, "client", r.RemoteAddr,
		"bytes", n, "status", answer.StatusCode, "took", took.Round(time.Millisecond).String())
	if answer.StatusCode < http.StatusBadRequest {
		log.Info("upload")
		return
	}
	head, _ := io.ReadAll(io.LimitReader(answer.Body, wordsMax)) // what is missing the client will miss too
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), answer.Body), answer.Body}
	words := strings.TrimSpace(string(head))
	log.Info("upload refused", "why", words)
	switch text, _ := body.broke(r); {
	case n == 0 || answer.StatusCode != http.StatusBadRequest && answer.StatusCode != http.StatusInternalServerError:
	case text != "":
		p.tell(to, n, text)
	case p.Tell != nil:
		p.Tell(to, fmt.Sprintf("Upload into %s failed: %s", to.Claim.Name, words))
	}
}

// broken answers when the way to the worker, or from the client, breaks.
func (p *proxy) broken(w http.ResponseWriter, r *http.Request, to Worker, body *counter, err error) {
	text, status := body.broke(r)
	if text == "" {
		text, status = "the upload worker went away; send it again, or go on with it", http.StatusServiceUnavailable
	}
	n := body.n.Load()
	p.Log.Warn("upload broken", "method", r.Method, "namespace", to.Claim.Namespace, "claim", to.Claim.Name,
		"client", r.RemoteAddr, "bytes", n, "why", text, "error", err)
	p.tell(to, n, text)
	w.Header().Set("Retry-After", "5")
	http.Error(w, text, status)
}

// tell tells the owner of an upload that it broke off.
func (p *proxy) tell(to Worker, n int64, text string) {
	if p.Tell != nil {
		p.Tell(to, fmt.Sprintf("Upload into %s failed after %d bytes: %s", to.Claim.Name, n, text))
	}
}

// gathered is a body that is passed on in large pieces: each becomes a chunk that is sent by itself, and a piece as it comes,
// of one record at most, would make two records of it.
type gathered struct{ io.ReadCloser }

const (
	gatherMost = writeBuffer - 64 // so that a piece fits the buffer with what makes it a chunk, and leaves at once
	// gatherLeast is the size of net/http's read buffer; after a smaller read there may be no more data for now.
	gatherLeast = 4 << 10
)

var gatherings = sync.Pool{New: func() any { return new([gatherMost]byte) }}

// WriteTo implements io.WriterTo, which net/http looks for.
func (g gathered) WriteTo(w io.Writer) (written int64, err error) {
	buf := gatherings.Get().(*[gatherMost]byte)
	defer gatherings.Put(buf)
	for err == nil {
		n := 0
		for more := gatherLeast + 1; n < len(buf) && more > gatherLeast && err == nil; n += more {
			more, err = g.Read(buf[n:])
		}
		m, failed := w.Write(buf[:n])
		written += int64(m)
		if failed != nil {
			return written, failed
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return written, err
}

// counter counts what a client sent and remembers why it stopped. It is read while others ask it.
type counter struct {
	io.ReadCloser
	n     atomic.Int64
	err   atomic.Pointer[error]
	meter *Meter
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	c.meter.sent(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err.Store(&err)
	}
	return n, err
}

// broke returns why a client did not send all of its request; empty: it did, or is about to.
func (c *counter) broke(r *http.Request) (text string, status int) {
	err := c.err.Load()
	switch {
	case err != nil && errors.Is(*err, minrate.ErrSlow):
		return (*err).Error(), http.StatusRequestTimeout
	case err != nil || r.Context().Err() != nil:
		return "the client went away", http.StatusServiceUnavailable
	}
	return "", 0
}
