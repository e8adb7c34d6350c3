package containervolume

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/pki"
)

// container serves as a container does, with certificates as Berth makes them.
type container struct {
	client Client
	ca     *pki.Authority
}

func (c *container) issue(t *testing.T, name string, use x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	p, err := c.ca.Issue(pki.Leaf{Name: name, DNSNames: []string{name}, Use: use, Lasts: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func serve(t *testing.T, handler http.HandlerFunc) *container {
	t.Helper()
	ca, err := pki.New("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := &container{ca: ca}
	trusted := x509.NewCertPool()
	trusted.AddCert(ca.Certificate())
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{c.issue(t, "it", x509.ExtKeyUsageServerAuth)}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert}
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	host, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	n, _ := strconv.Atoi(port)
	c.client = Client{Address: host, Port: n, TLS: &tls.Config{RootCAs: trusted, ServerName: "it",
		Certificates: []tls.Certificate{c.issue(t, "berth", x509.ExtKeyUsageClientAuth)}}}
	return c
}

var request = Request{Namespace: "team", Machine: "web", UID: "u", Volume: "root", Size: "1Gi"}

// TestAsked: the container gets the document, and its answer is the source; what is there and what is gone is success.
func TestAsked(t *testing.T) {
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.URL.Path+" "+string(text))
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, seedISCSI)
	})
	s, err := c.client.Make(t.Context(), request)
	if err != nil || s.ISCSI == nil || s.ISCSI.LUN != 2 {
		t.Fatalf("%+v %v", s, err)
	}
	if err := c.client.Delete(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	document, _ := json.Marshal(request)
	if want := []string{"PUT /volume " + string(document), "DELETE /volume " + string(document)}; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked %q, want %q", got, want)
	}
}

// TestAnswersOverTheWire: whatever a container does instead of answering has a name, costs little and leads nowhere else.
func TestAnswersOverTheWire(t *testing.T) {
	elsewhere := 0
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		refused bool
		want    string
	}{
		{"it has to be asked again", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, false, "not done yet"},
		{"an error with words", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the pool\nis \x00full", http.StatusInsufficientStorage)
		}, true,
			"PUT /volume was answered with 507 Insufficient Storage: the pool is full"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, true, "Berth follows no redirect"},
		{"too much", func(w http.ResponseWriter, _ *http.Request) {
			for range 1 << 20 {
				if _, err := io.WriteString(w, strings.Repeat("# ", 1000)+"\n"); err != nil {
					return
				}
			}
		}, true, "larger than 64 KiB"},
		{"silence", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that nobody waits any more
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // to return would be an answer, which may still get there
		}, false, "no answer within"},
		{"half an answer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "pvc: {claimname: c")
		}, false, "read the answer of PUT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := time.Minute
			if c.name == "silence" {
				limit = 2 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := serve(t, c.handler).client.Make(ctx, request)
			if err == nil || errors.Is(err, ErrRefused) != c.refused || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if elsewhere != 0 {
		t.Error("somebody else was asked")
	}
}

// TestOnlyItIsAskedAndOnlyWeAsk: a server with another container's certificate is not believed, and a client without one of ours,
// such as another container, is not answered.
func TestOnlyItIsAskedAndOnlyWeAsk(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, seedClaim) })
	if _, err := c.client.Make(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*tls.Config){
		"another's name": func(t *tls.Config) { t.ServerName = "another" },
		"no certificate": func(t *tls.Config) { t.Certificates = nil },
		"another container's": func(x *tls.Config) {
			x.Certificates = []tls.Certificate{c.issue(t, "another", x509.ExtKeyUsageServerAuth)}
		},
		"another authority's": func(t *tls.Config) { t.RootCAs = x509.NewCertPool() },
	} {
		config := c.client.TLS.Clone()
		change(config)
		if _, err := (Client{Address: c.client.Address, Port: c.client.Port, TLS: config}).Make(t.Context(), request); err == nil {
			t.Errorf("%s: it was asked and answered", name)
		}
	}
}
