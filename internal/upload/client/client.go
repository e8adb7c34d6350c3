// Package client sends an image to the upload proxy so that a broken connection costs nothing but the wait: by the tus
// protocol, from where the server says it is, without the zeroes of a sparse file, and with a fresh token whenever the
// old one is refused. A server that does not know tus gets the file in one POST, as it always did.
//
// It does not know Kubernetes: who calls it finds the proxy and fetches tokens.
package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/upload/tlsbatch"
)

// Options say where a file goes and how.
type Options struct {
	// URL of the proxy as CDIConfig shows it: https://host[:port], http://host[:port], or a bare host for https.
	URL string
	// Token fetches a token for the claim. It is called before the first request and after every 401.
	Token func(ctx context.Context) (string, error)
	// CA is PEM of authorities that are trusted besides the system's; Insecure accepts every certificate.
	CA       []byte
	Insecure bool
	// Retries is how many consecutive attempts may bring no new data before Send gives up.
	Retries int
	// Progress is called with how many bytes of the file the server has, and the size of the file. It is called from Send's
	// goroutine or from one that Send waits for, never from two at once. It may be nil.
	Progress func(done, total int64)
	// Retrying is called with the error of a failed try and the pause before the next. It is called from Send's goroutine, and
	// may be nil.
	Retrying func(err error, pause time.Duration)
	// Pause is how long to wait after the n-th consecutive attempt that brought no data. Nil is a second, doubling to half a minute.
	Pause func(n int) time.Duration
}

// Refused is a server's answer that trying again would not change.
type Refused struct {
	Status  int
	Message string
}

// Error has the words that clients of the proxy know.
func (r *Refused) Error() string {
	return fmt.Sprintf("unexpected return value %d, %s", r.Status, r.Message)
}

// Send sends the file at path and returns when the server has it on stable storage; one that does not know tus, when it has taken
// it all. An error that is a *Refused is the server's final answer; any other is the error of the last of Options.Retries tries.
func Send(ctx context.Context, path string, o Options) error {
	opened, err := os.Open(path)
	if err != nil {
		return err // it names the file and what was attempted
	}
	defer opened.Close() // opened for reading
	f, err := look(opened)
	if err != nil {
		return err
	}
	return send(ctx, f, o)
}

// SendFrom is Send for what is no file of this machine. It is not looked at whether it changes: its reader must.
func SendFrom(ctx context.Context, from Origin, o Options) error { return send(ctx, from.file(), o) }

func send(ctx context.Context, f *file, o Options) error {
	s, err := newSender(f, o)
	if err != nil {
		return err
	}
	defer s.http.CloseIdleConnections()
	if err := s.renew(ctx); err != nil {
		return err
	}
	err = s.send(ctx)
	if errors.Is(err, errNoTus) {
		return s.post(ctx)
	}
	return err
}

// errNoTus: the server has no resumable uploads.
var errNoTus = errors.New("the server does not know resumable uploads")

// sender is one file on its way.
type sender struct {
	Options
	file   *file
	base   *url.URL
	http   *http.Client
	token  string
	upload *url.URL // of the tus upload, once it is made
	plain  bool     // the server does not take frames
}

func newSender(f *file, o Options) (*sender, error) {
	raw := o.URL
	if !strings.Contains(raw, "://") {
		raw = "https://" + raw
	}
	base, err := url.Parse(raw)
	if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" {
		return nil, fmt.Errorf("%q is no address of an upload proxy", o.URL)
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	if o.Retrying == nil {
		o.Retrying = func(error, time.Duration) {}
	}
	if o.Pause == nil {
		o.Pause = pause
	}
	transport, err := Transport(o)
	if err != nil {
		return nil, err
	}
	return &sender{Options: o, file: f, base: base, http: &http.Client{Transport: transport}}, nil
}

// Transport makes connections to the proxy, with the trust that the options configure.
func Transport(o Options) (*http.Transport, error) {
	config, err := trust(o)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialPatience, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DialContext: dialer.DialContext, TLSHandshakeTimeout: dialPatience,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialTLS(ctx, dialer, network, address, config)
		},
		ExpectContinueTimeout: time.Second, WriteBufferSize: 64 << 10,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, // one upload per connection: HTTP/1.1 is faster
	}, nil
}

// dialPatience is how long a proxy may take to answer the first request.
const dialPatience = 30 * time.Second

func dialTLS(ctx context.Context, d *net.Dialer, network, address string, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	raw, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config = config.Clone()
	if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
		_ = raw.Close() // nothing was sent
		return nil, err
	}
	return tlsbatch.Client(ctx, raw, config) // its errors say what was attempted, and net/http knows some
}

func trust(o Options) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.Insecure} //nolint:gosec // G402: the user asked for it
	if len(o.CA) == 0 {
		return config, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(o.CA) {
		return nil, errors.New("the authority given for the upload proxy is no certificate")
	}
	config.RootCAs = pool
	return config, nil
}

// renew fetches a fresh token.
func (s *sender) renew(ctx context.Context) (err error) {
	if s.token, err = s.Token(ctx); err != nil {
		return fmt.Errorf("fetch an upload token: %w", err)
	}
	return nil
}

const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

func pause(n int) time.Duration { return min(firstPause<<min(n, 5), longestPause) }

// wait waits before the n-th try in a row that follows one which failed with err, or until ctx ends.
func (s *sender) wait(ctx context.Context, n int, err error) error {
	pause := s.Pause(n)
	s.Retrying(err, pause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
