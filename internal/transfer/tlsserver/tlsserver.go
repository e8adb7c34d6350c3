// Package tlsserver is what the HTTP servers of workers share: it serves until it is told to stop, and lets in who shows a token.
//
// It does not know what is served.
package tlsserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Token is the header of a request with its token.
const Token = "X-Kubevirt-Export-Token" //nolint:gosec // G101: the name of a header

// query is the parameter of a URL with the token.
const query = "x-kubevirt-export-token"

// Serve serves at an address until ctx ends. ready is called with the address once clients can connect.
func Serve(ctx context.Context, address string, server *http.Server, ready func(net.Addr)) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = server.Close()
		close(stopped)
	})
	ready(l.Addr())
	err = server.ServeTLS(l, "", "")
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the volume: %w", err)
}

// ForPeople returns a server for clients of any kind, with the certificate in a directory.
func ForPeople(keys string, handler http.Handler) (*http.Server, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(keys, "tls.crt"), filepath.Join(keys, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read this worker's certificate: %w", err)
	}
	return &http.Server{Handler: handler, ReadHeaderTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog:     log.New(io.Discard, "", 0), // the kubelet's probes are no clients, once a second
		TLSConfig:    &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}, nil // HTTP/1.1: each download has its own flow control
}

// Guarded refuses requests without the token. The token is read for each request: its Secret may change.
func Guarded(dir string, inside http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := os.ReadFile(filepath.Join(dir, "token"))
		if err != nil || len(token) == 0 {
			http.Error(w, "there is no token for this export", http.StatusForbidden)
			return
		}
		shows := r.Header.Get(Token)
		if shows == "" { // as clients do that cannot send headers
			shows = r.URL.Query().Get(query)
		}
		want, shown := sha256.Sum256(token), sha256.Sum256([]byte(shows))
		if subtle.ConstantTimeCompare(want[:], shown[:]) != 1 {
			http.Error(w, "the token of this export is needed, in the header or the query parameter "+query, http.StatusUnauthorized)
			return
		}
		inside.ServeHTTP(w, r)
	})
}
