// Package http reads images from web servers: http:// and https:// URLs, with and without ranges. It trusts no answer
// further than it can be checked (a range must be the one asked for, of the version the transfer began with), and it
// never decodes a body. It does not know object stores' or registries' own protocols.
package http

import (
	"context"
	"errors"
	"io"
	"net"
	nethttp "net/http"
	"net/url"
	"sync"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/httpaccess"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// Open finds out what is at the URL (its size, whether it has ranges, its version) and returns it. The blob tries
// broken ranges again as retry.Default says.
func Open(ctx context.Context, t task.HTTP) (source.Blob, error) { return open(ctx, t, retry.Default) }

// Dial makes a connection as net.Dialer does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// OpenThrough is Open for a caller that makes every connection itself, those that redirects lead to among them.
func OpenThrough(ctx context.Context, t task.HTTP, dial Dial) (source.Blob, error) {
	return openThrough(ctx, t, retry.Default, dial)
}

func open(ctx context.Context, t task.HTTP, p retry.Policy) (source.Blob, error) {
	return openThrough(ctx, t, p, nil)
}

func openThrough(ctx context.Context, t task.HTTP, p retry.Policy, dial Dial) (source.Blob, error) {
	u, err := parse(t.URL)
	if err != nil {
		return nil, err
	}
	headers, err := headers(t, u)
	if err != nil {
		return nil, err
	}
	u.User = nil // it is in the headers now, where redirects cannot take it along
	transport, err := httpaccess.Transport(t.Access)
	if err != nil {
		return nil, err
	}
	if dial != nil {
		transport.DialContext = dial
	}
	return Get(ctx, Request{URL: u, Header: headers, Transport: transport, Policy: p})
}

func parse(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err // without the URL: it may hold a password
		}
		return nil, task.Errorf(task.BadTask, "the source's URL cannot be parsed: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, task.Errorf(task.BadTask, "%s is no http:// or https:// URL with a host", Name(u))
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// Name returns how messages call u: without credentials, and without the query, where signed URLs keep theirs.
func Name(u *url.URL) string {
	n := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	if u.RawQuery != "" {
		return n.String() + "?..."
	}
	return n.String()
}

// Request is a blob that plain GETs bring, for sources whose protocol is HTTP underneath.
type Request struct {
	URL    *url.URL
	Name   string         // how messages call it; empty: made from URL
	Header nethttp.Header // sent with each request to URL's own host, and never to another one
	// Transport carries the requests. The blob owns its idle connections: closing the blob closes them.
	Transport nethttp.RoundTripper
	Policy    retry.Policy
	// Validator is the header of an answer that identifies the version if the protocol has a better one than ETag, and Condition the
	// header of a request that requires that version.
	Validator, Condition string
	// Immutable says that the URL names the bytes by their digest: validators are not looked at, because mirrors of the
	// same bytes may each have their own, and the caller's Info replaces the version.
	Immutable bool
}

// Get probes a request and returns the blob behind it.
func Get(ctx context.Context, r Request) (source.Blob, error) {
	if r.Name == "" {
		r.Name = Name(r.URL)
	}
	b := &blob{request: r, client: &nethttp.Client{Transport: r.Transport, CheckRedirect: redirect(r)}}
	err := r.Policy.Do(ctx, func(ctx context.Context) error { return b.probe(ctx, r.Policy.Idle) })
	if err != nil {
		b.client.CloseIdleConnections()
		return nil, err
	}
	return retry.Blob(b, r.Policy), nil
}

// blob is one try: package retry adds the others.
type blob struct {
	request Request
	client  *nethttp.Client
	info    source.Info
	version version

	mu     sync.Mutex
	direct *target // where redirects led, so that all ranges come from one mirror; nil: ask request.URL
	first  *answer // the body that the probe got from a server without ranges, until the first Open takes it
}

func (b *blob) Info() source.Info { return b.info }

func (b *blob) Close() error {
	b.mu.Lock()
	first := b.first
	b.first = nil
	b.mu.Unlock()
	if first != nil {
		first.close()
	}
	b.client.CloseIdleConnections()
	return nil
}

func (b *blob) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	n, err := b.info.Span(off, n)
	switch {
	case err != nil:
		return nil, err
	case n < 0:
		return b.whole(ctx)
	case n == 0:
		return nethttp.NoBody, nil
	}
	return b.span(ctx, off, n)
}
