// Package gcs reads an object of Google Cloud Storage: gs://bucket/key, or an http(s) URL of one (which may be another
// server that speaks the same protocol). It uses the plain object protocol over HTTP and nothing of Google's client,
// whose gRPC and telemetry would make half of the worker's binary for the sake of one kind of GET.
package gcs

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	nethttp "net/http"
	"net/url"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/bucket"
	"github.com/berth-vm/berth/internal/transfer/source/fault"
	"github.com/berth-vm/berth/internal/transfer/source/http"
	"github.com/berth-vm/berth/internal/transfer/source/httpaccess"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

const (
	host    = "storage.googleapis.com"
	scope   = "https://www.googleapis.com/auth/devstorage.read_only"
	keyFile = "credentials.json"
)

// Open finds the object. Without credentials it is read anonymously. Its version is its generation.
func Open(ctx context.Context, t task.GCS) (source.Blob, error) { return open(ctx, t, retry.Default) }

func open(ctx context.Context, t task.GCS, p retry.Policy) (source.Blob, error) {
	u, err := bucket.Parse(t.URL, "gs", host)
	if err != nil {
		return nil, err
	}
	transport, err := httpaccess.Transport(t.Access)
	if err != nil {
		return nil, err
	}
	authorized, err := authorize(t, u, transport)
	if err != nil {
		return nil, err
	}
	return http.Get(ctx, http.Request{
		URL: u, Transport: authorized, Policy: p,
		// Objects stored with "Content-Encoding: gzip" are decompressed by the server for clients that do not accept gzip.
		Header:    nethttp.Header{"User-Agent": {httpaccess.UserAgent}, "Accept-Encoding": {"gzip"}},
		Validator: "X-Goog-Generation", Condition: "X-Goog-If-Generation-Match",
	})
}

// authorize adds a token to the requests if there is a service account's key.
func authorize(t task.GCS, u *url.URL, base *nethttp.Transport) (nethttp.RoundTripper, error) {
	if t.CredentialsDir == "" {
		return base, nil
	}
	text, err := httpaccess.ReadFile(t.CredentialsDir, keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, task.Errorf(task.SourceDenied, "the source's secret needs the key %s: %w", keyFile, err)
	}
	if err != nil {
		return nil, err
	}
	conf, err := account([]byte(text))
	if err != nil {
		return nil, err
	}
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, &nethttp.Client{Transport: base})
	return &bearer{base: base, tokens: conf.TokenSource(ctx), host: u.Host, name: http.Name(u)}, nil
}

// account reads a service account's key. Other kinds of credentials name programs to run or URLs to ask, which a secret
// from a tenant must not make the worker do.
func account(text []byte) (*jwt.Config, error) {
	var key struct {
		Type     string `json:"type"`
		Email    string `json:"client_email"`
		KeyID    string `json:"private_key_id"`
		Key      string `json:"private_key"`
		TokenURI string `json:"token_uri"`
	}
	if err := json.Unmarshal(text, &key); err != nil {
		return nil, task.Errorf(task.SourceDenied, "%s in the source's secret is no JSON", keyFile)
	}
	if key.Type != "service_account" || key.Email == "" || key.Key == "" {
		return nil, task.Errorf(task.SourceDenied, "%s in the source's secret is no service account's key but %q", keyFile,
			key.Type)
	}
	if block, _ := pem.Decode([]byte(key.Key)); block == nil {
		return nil, task.Errorf(task.SourceDenied, "private_key of %s in the source's secret is not in PEM form", keyFile)
	}
	if key.TokenURI == "" {
		key.TokenURI = "https://oauth2.googleapis.com/token"
	}
	return &jwt.Config{Email: key.Email, PrivateKey: []byte(key.Key), PrivateKeyID: key.KeyID, Scopes: []string{scope},
		TokenURL: key.TokenURI}, nil
}

// bearer puts a fresh token on each request to the object's own host.
type bearer struct {
	base   *nethttp.Transport
	tokens oauth2.TokenSource
	host   string
	name   string
}

func (b *bearer) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	if r.URL.Host != b.host {
		return b.base.RoundTrip(r)
	}
	token, err := b.tokens.Token()
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode < 500:
		return nil, task.Errorf(task.SourceDenied, "%s: a token for the service account was refused with %s: check %s in the "+
			"source's secret", b.name, refused.Response.Status, keyFile)
	case err != nil:
		return nil, fault.Wire(b.name, fmt.Errorf("ask for a token: %w", err))
	}
	r = r.Clone(r.Context())
	token.SetAuthHeader(r)
	return b.base.RoundTrip(r)
}

// CloseIdleConnections is called by http.Client.
func (b *bearer) CloseIdleConnections() { b.base.CloseIdleConnections() }
