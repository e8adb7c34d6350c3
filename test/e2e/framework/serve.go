//go:build e2e

package framework

import (
	"net"
	"net/http"
	"time"
)

// Serve serves the handler on this machine until the test ends, at an address the cluster's pods can reach, and returns its URL without a
// slash at the end. http.FileServer is the usual handler; a handler of the test's own can be slow, fail, or count.
func (e *Env) Serve(handler http.Handler) string {
	e.T.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(e.HostAddress(), "0"))
	if err != nil {
		e.T.Fatalf("listen where pods can reach it: %v", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 30 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // it returns when the test closes it
	}()
	e.T.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return "http://" + listener.Addr().String()
}
