//go:build e2e

package framework

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"time"
)

// Serve serves the handler on this machine until the test ends, at an address the cluster's pods can reach, and returns its URL without a
// slash at the end. http.FileServer is the usual handler; a handler of the test's own can be slow, fail, or count.
func (e *Env) Serve(handler http.Handler) string {
	e.T.Helper()
	return "http://" + e.serve(handler, nil)
}

// ServeTLS does so with a certificate of an unknown authority, and returns that authority as PEM.
func (e *Env) ServeTLS(handler http.Handler) (url, authority string) {
	e.T.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		e.T.Fatalf("make a key: %v", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(e.HostAddress())}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		e.T.Fatalf("make a certificate: %v", err)
	}
	at := e.serve(handler, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	return "https://" + at, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func (e *Env) serve(handler http.Handler, secret *tls.Config) string {
	e.T.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(e.HostAddress(), "0"))
	if err != nil {
		e.T.Fatalf("listen where pods can reach it: %v", err)
	}
	at := listener.Addr().String()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	if secret != nil {
		listener = tls.NewListener(listener, secret)
		server.ErrorLog = log.New(io.Discard, "", 0) // clients that are not told whom to trust are meant
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // it returns when the test closes it
	}()
	e.T.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return at
}
