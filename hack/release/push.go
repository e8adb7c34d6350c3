package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// registry is where images are pushed to.
type registry struct {
	path      string // host and path, such as registry.example.com/team/berth
	authority string // file with the certificates to trust beside the machine's own
	plain     bool   // no TLS
}

func (r *registry) flags(f *flag.FlagSet) {
	f.StringVar(&r.path, "registry", "", "registry and path, such as registry.example.com/berth")
	f.StringVar(&r.authority, "ca", "", "file with certificates of authorities to trust beside the machine's own")
	f.BoolVar(&r.plain, "plain-http", false, "the registry has no TLS")
}

// repository returns that of an image in the registry.
func (r *registry) repository(image string) (name.Repository, error) {
	var options []name.Option
	if r.plain {
		options = append(options, name.Insecure)
	}
	host, path, _ := strings.Cut(r.path, "/")
	if host == "" || path == "" || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return name.Repository{}, fmt.Errorf("%q is no registry: name host and path, such as registry.example.com/berth (REGISTRY=HOST/PATH)", r.path)
	}
	repository, err := name.NewRepository(strings.TrimSuffix(r.path, "/")+"/"+image, options...)
	if err != nil {
		return repository, fmt.Errorf("%q is no registry: %w", r.path, err)
	}
	return repository, nil
}

// transport trusts who is to be trusted, and speaks TLS unless it was told not to.
func (r *registry) transport() (http.RoundTripper, error) {
	trip, err := r.trusting()
	if err != nil || r.plain {
		return trip, err
	}
	return tlsOnly{trip}, nil
}

// tlsOnly refuses what would be sent in the clear. The library tries that with registries at private addresses if their
// certificate is not trusted: a server there would be told the password.
type tlsOnly struct{ http.RoundTripper }

var errPlain = errors.New("without TLS nothing is sent to it: -plain-http (PLAIN_HTTP=1) allows it")

func (t tlsOnly) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.URL.Scheme != "https" {
		return nil, errPlain
	}
	return t.RoundTripper.RoundTrip(q)
}

func (r *registry) trusting() (http.RoundTripper, error) {
	if r.authority == "" {
		return remote.DefaultTransport, nil
	}
	text, err := os.ReadFile(r.authority)
	if err != nil {
		return nil, fmt.Errorf("read the authorities to trust: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the machine's authorities: %w", err)
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", r.authority)
	}
	t := remote.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

func runPush(ctx context.Context, args []string, out io.Writer) error {
	var o options
	var r registry
	flags := flag.NewFlagSet("push", flag.ContinueOnError)
	r.flags(flags)
	if err := o.parse(ctx, flags, args); err != nil {
		return err
	}
	all, err := readImages(o.dist)
	if err != nil {
		return err
	}
	return r.push(ctx, all, out)
}

// push brings the images there under their version. Whatever is there already is not sent again, and an image that was pushed before is
// left as it is, so a push that was interrupted may be repeated.
func (r *registry) push(ctx context.Context, all []image, out io.Writer) error {
	trip, err := r.transport()
	if err != nil {
		return err
	}
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(trip), remote.WithAuthFromKeychain(authn.DefaultKeychain),
	}
	for _, i := range all {
		repository, err := r.repository(i.name)
		if err != nil {
			return err
		}
		tag := repository.Tag(i.version)
		if err := remote.WriteIndex(tag, i.index, options...); err != nil {
			return r.refused(tag, err)
		}
		is, err := remote.Head(repository.Digest(i.digest.String()), options...)
		if err != nil {
			return r.refused(tag, err)
		}
		_, _ = fmt.Fprintf(out, "%s %s\n", tag, is.Digest)
	}
	return nil
}

// refused is one line that says who refused what, and what to do.
func (r *registry) refused(tag name.Tag, err error) error {
	var said *transport.Error
	host := tag.RegistryStr()
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &said) && said.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("registry %s wants other credentials for %s (%s): log in with docker login %s or the like", host, tag.RepositoryStr(), diagnosis(said), host)
	case errors.As(err, &said):
		return fmt.Errorf("registry %s refuses %s: %s", host, tag.RepositoryStr(), diagnosis(said))
	case errors.As(err, &unknown):
		return fmt.Errorf("registry %s has a certificate of an authority that this machine does not trust: name it with -ca FILE (CA=FILE)", host)
	}
	return fmt.Errorf("push %s: %s", tag, strings.Join(strings.Fields(err.Error()), " "))
}

// diagnosis returns what a registry said, in one line.
func diagnosis(e *transport.Error) string {
	line := fmt.Sprintf("status %d", e.StatusCode)
	for _, d := range e.Errors {
		line += ", " + strings.TrimSpace(string(d.Code)+" "+strings.Join(strings.Fields(d.Message), " "))
	}
	return line
}
