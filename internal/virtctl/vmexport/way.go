package vmexport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	export "github.com/berth-vm/berth/api/export/v1beta1"
	"github.com/berth-vm/berth/internal/render"
)

// way is a way to the server of an export.
type way struct {
	client *http.Client
	token  string
	accept string // a kind of answer; empty: any
	close  func()
}

// wayTo connects to the server: at the address that the user gives, or through the API server, by a port that is forwarded to its pod.
// Its certificate is checked against the authority in the export's status whichever way it is.
func (r *run) wayTo(ctx context.Context, l link) (*way, error) {
	u, err := url.Parse(l.url)
	if err != nil {
		return nil, fmt.Errorf("read the address of the volume: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(l.cert)) && !r.Insecure {
		return nil, errors.New("the export does not say which authority to trust")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: u.Hostname(), InsecureSkipVerify: r.Insecure} //nolint:gosec // G402: the user asked for it
	at, closed := r.ServiceURL, func() {}
	if at == "" && r.Direct {
		at = u.Host
	}
	if at == "" {
		if at, closed, err = r.forward(ctx, l); err != nil {
			return nil, err
		}
	} else if _, _, err := net.SplitHostPort(at); err != nil {
		at = net.JoinHostPort(at, "443")
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second}
	return &way{token: l.token, close: closed, client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: config, TLSHandshakeTimeout: 30 * time.Second, ResponseHeaderTimeout: 0, // a device may be looked through first
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			if r.Direct {
				return dialUntil(ctx, dialer, network, at)
			}
			return dialer.DialContext(ctx, network, at)
		},
	}}}, nil
}

// settles is how long the nodes may take until a new Service leads to its pod.
const settles = 30 * time.Second

// dialUntil connects to a Service that is new: until every node knows where it leads, connections are refused.
func dialUntil(ctx context.Context, d *net.Dialer, network, at string) (net.Conn, error) {
	limit := time.NewTimer(settles)
	defer limit.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		conn, err := d.DialContext(ctx, network, at)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
			return conn, err
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// forward forwards a port of this machine to the server until it is closed.
func (r *run) forward(ctx context.Context, l link) (at string, closed func(), err error) {
	transport, upgrader, err := spdy.RoundTripperFor(r.cluster.Config)
	if err != nil {
		return "", nil, fmt.Errorf("forward a port to the export: %w", err)
	}
	path := r.cluster.Core.CoreV1().RESTClient().Post().Resource("pods").Namespace(l.server.Namespace).Name(l.server.Name).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, path)
	stop, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ports := []string{fmt.Sprintf("%d:%d", r.LocalPort, render.ExportPort)}
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, ports, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, fmt.Errorf("forward a port to the export: %w", err)
	}
	go func() { failed <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		return "", nil, fmt.Errorf("forward a port to the export: %w", err)
	case <-ctx.Done():
		close(stop)
		return "", nil, context.Cause(ctx)
	}
	local, err := f.GetPorts()
	if err != nil || len(local) != 1 {
		close(stop)
		return "", nil, errors.Join(errors.New("forward a port to the export: which one is not known"), err)
	}
	return fmt.Sprintf("127.0.0.1:%d", local[0].Local), func() { close(stop); <-failed }, nil
}

// get asks for a part of what is at the address: all from off on, if it is still what tag says.
func (w *way) get(ctx context.Context, method, address string, off int64, tag string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for the volume: %w", err)
	}
	request.Header.Set(export.TokenHeader, w.token)
	if w.accept != "" {
		request.Header.Set("Accept", w.accept)
	}
	if off > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", off))
		request.Header.Set("If-Range", tag)
	}
	answer, err := w.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for the volume: %w", err)
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusPartialContent {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // the body has the whole error
		_ = answer.Body.Close()
		return nil, &refused{status: answer.Status, code: answer.StatusCode, text: string(text)}
	}
	return answer, nil
}

// refused is an answer of the server that is not the volume.
type refused struct {
	status, text string
	code         int
}

func (r *refused) Error() string { return fmt.Sprintf("Bad status: %s %s", r.status, r.text) }
