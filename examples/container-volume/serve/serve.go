// Package serve is the part that every container that makes volumes has in common: it serves PUT and DELETE of /volume with the
// certificate that Berth made for it, to Berth alone. It needs nothing but the standard library, so that it can be copied.
package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Request is the body of a request to the container, of PUT and DELETE alike.
type Request struct {
	Namespace string `json:"namespace"`
	Machine   string `json:"machine"`
	UID       string `json:"uid"`
	Volume    string `json:"volume"`
	Size      string `json:"size"`
}

// ErrNotYet is answered with 202: the question is put again.
var ErrNotYet = errors.New("not yet")

// Maker makes and deletes a volume. Both methods are called again, with the same request, until they succeed: a volume that exists
// already or is deleted already is a success.
type Maker interface {
	// Make answers with the source in YAML.
	Make(ctx context.Context, r Request) (string, error)
	Delete(ctx context.Context, r Request) error
}

// keys is the directory with the container's certificate and the authorities that it trusts.
const keys = "/run/berth/volume"

// Run serves until it cannot.
func Run(address string, m Maker) error {
	s := &http.Server{
		Addr: address, Handler: handler(m), ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: config},
	}
	log.Printf("listening at %s", address)
	return s.ListenAndServeTLS("", "")
}

// config reads the files for each connection: they are replaced now and then.
func config(*tls.ClientHelloInfo) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(filepath.Join(keys, "tls.crt"), filepath.Join(keys, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(keys, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read whom to trust: %w", err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(text)
	return &tls.Config{
		Certificates: []tls.Certificate{own}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}, nil
}

func handler(m Maker) http.Handler {
	var one sync.Mutex // a question that is put again while the first is being answered waits
	ask := func(w http.ResponseWriter, r *http.Request, do func(Request) (string, error)) {
		var request Request
		if err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		one.Lock()
		defer one.Unlock()
		answer, err := do(request)
		log.Printf("%q %q/%q %q: %q %v", r.Method, request.Namespace, request.Machine, request.Volume, answer, err) //nolint:gosec // everything a stranger wrote is quoted
		switch {
		case errors.Is(err, ErrNotYet):
			w.WriteHeader(http.StatusAccepted)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Type", "application/yaml")
			_, _ = io.WriteString(w, answer)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /volume", func(w http.ResponseWriter, r *http.Request) {
		ask(w, r, func(q Request) (string, error) { return m.Make(r.Context(), q) })
	})
	mux.HandleFunc("DELETE /volume", func(w http.ResponseWriter, r *http.Request) {
		ask(w, r, func(q Request) (string, error) { return "", m.Delete(r.Context(), q) })
	})
	return mux
}
