package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/fault"
	"github.com/berth-vm/berth/internal/transfer/source/http"
	"github.com/berth-vm/berth/internal/transfer/source/httpaccess"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// remote is an image in a registry.
type remote struct {
	ref    name.Reference
	name   string
	route  *route
	policy retry.Policy
}

// openRemote says hello to the registry and proves who we are. Connections are made by dial, if there is one.
func openRemote(ctx context.Context, ref name.Reference, t task.Registry, p retry.Policy, dial http.Dial) (store, error) {
	auth, err := login(t, ref)
	if err != nil {
		return nil, err
	}
	a := t.Access
	a.Insecure = a.Insecure || t.PlainHTTP
	base, err := httpaccess.Transport(a)
	if err != nil {
		return nil, err
	}
	if dial != nil {
		base.DialContext = dial
	}
	r := &remote{ref: ref, name: "docker://" + ref.Name(), policy: p}
	g := &guard{base: base, plain: t.PlainHTTP, name: r.name}
	err = p.Do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, p.Idle)
		defer cancel()
		tr, err := transport.NewWithContext(ctx, ref.Context().Registry, auth, g, []string{ref.Scope(transport.PullScope)})
		if err != nil {
			return explain(r.name, err)
		}
		r.route = &route{RoundTripper: tr, base: base, name: r.name}
		return nil
	})
	if err != nil {
		base.CloseIdleConnections()
		return nil, err
	}
	return r, nil
}

func (r *remote) close() error {
	r.route.CloseIdleConnections()
	return nil
}

// at returns the URL of a part. Its scheme is corrected on the way to the one the registry answered to.
func (r *remote) at(kind, id string) *url.URL {
	repo := r.ref.Context()
	return &url.URL{Scheme: repo.Scheme(), Host: repo.RegistryStr(),
		Path: fmt.Sprintf("/v2/%s/%s/%s", repo.RepositoryStr(), kind, id)}
}

var manifestTypes = strings.Join([]string{string(types.OCIImageIndex), string(types.DockerManifestList),
	string(types.OCIManifestSchema1), string(types.DockerManifestSchema2)}, ",")

func (r *remote) manifest(ctx context.Context, digest string) ([]byte, error) {
	id := digest
	if id == "" {
		id = r.ref.Identifier()
	}
	if d, ok := r.ref.(name.Digest); ok && digest == "" {
		digest = d.DigestStr()
	}
	text, err := r.small(ctx, r.at("manifests", id), manifestTypes)
	if err != nil || digest == "" {
		return text, err
	}
	return text, checked(r.name, text, digest)
}

func (r *remote) config(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	if d.Size > smallLimit {
		return nil, task.Errorf(task.BadImage, "%s: its configuration has %d bytes, more than %d", r.name, d.Size, smallLimit)
	}
	text, err := r.small(ctx, r.at("blobs", d.Digest.String()), "*/*")
	if err != nil {
		return nil, err
	}
	return text, checked(r.name, text, d.Digest.String())
}

// checked compares the digest of a small document.
func checked(name string, text []byte, digest string) error {
	got, _, err := v1.SHA256(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("digest of a part of %s: %w", name, err)
	}
	if got.String() != digest {
		return task.Errorf(task.SourceUnavailable, "%s: the registry sent %s where %s was asked for", name, got, digest)
	}
	return nil
}

// small fetches a small document.
func (r *remote) small(ctx context.Context, u *url.URL, accept string) ([]byte, error) {
	var text []byte
	err := r.policy.Do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // for 4 MiB at most
		defer cancel()
		req, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodGet, u.String(), nil)
		if err != nil {
			return task.Errorf(task.BadTask, "request %s: %w", r.name, err)
		}
		req.Header.Set("Accept", accept)
		resp, err := (&nethttp.Client{Transport: r.route}).Do(req)
		if err != nil {
			return fault.Wire(r.name, err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != nethttp.StatusOK {
			return fault.Status(r.name, resp.StatusCode)
		}
		text, err = io.ReadAll(io.LimitReader(resp.Body, smallLimit+1))
		if err != nil {
			return fault.Wire(r.name, err)
		}
		if len(text) > smallLimit {
			return task.Errorf(task.BadImage, "%s: its manifest or configuration is larger than %d bytes", r.name, smallLimit)
		}
		return nil
	})
	return text, err
}

func (r *remote) layer(ctx context.Context, d v1.Descriptor) (source.Blob, error) {
	b, err := http.Get(ctx, http.Request{
		URL: r.at("blobs", d.Digest.String()), Name: r.name, Transport: r.route, Policy: r.policy, Immutable: true,
		Header: nethttp.Header{"User-Agent": {httpaccess.UserAgent}},
	})
	if err != nil {
		return nil, err
	}
	if size := b.Info().Size; size >= 0 && size != d.Size {
		_ = b.Close() // it is of no use
		return nil, task.Errorf(task.SourceUnavailable, "%s: the registry has %d bytes of layer %s, the manifest says %d", r.name,
			size, d.Digest, d.Size)
	}
	return b, nil
}

// route carries requests with the registry's authentication.
type route struct {
	nethttp.RoundTripper
	base *nethttp.Transport
	name string
}

func (r *route) RoundTrip(req *nethttp.Request) (*nethttp.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, explain(r.name, err)
	}
	return resp, nil
}

// CloseIdleConnections is called by http.Client.
func (r *route) CloseIdleConnections() { r.base.CloseIdleConnections() }

// explain gives an error of the registry's authentication its reason.
func explain(name string, err error) error {
	// On this machine both schemes are tried, and a server of the one answers the other with an error of its own.
	if wire := fault.Wire(name, err); task.Is(wire, task.SourceUntrusted) {
		return wire
	}
	var e *transport.Error
	if errors.As(err, &e) && e.StatusCode != 0 {
		return fault.Status(name, e.StatusCode)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return task.Errorf(task.SourceUnreachable, "%s: the registry does not answer", name)
	}
	return fault.Wire(name, err)
}

// guard keeps the registry library from speaking plain HTTP to whatever has a private address: only what the task calls
// insecure, and this machine, is spoken to in the clear.
type guard struct {
	base  nethttp.RoundTripper
	plain bool
	name  string
}

func (g *guard) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	if r.URL.Scheme == "http" && !g.plain && !loopback(r.URL.Hostname()) {
		return nil, task.Errorf(task.SourceUntrusted, "%s does not speak TLS: add it to the insecure registries if that is meant to "+
			"be so", g.name)
	}
	return g.base.RoundTrip(r)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
