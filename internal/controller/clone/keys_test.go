package clone

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"
)

// TestKeysOfAClone: its two ends trust each other, and the ends of no other clone.
func TestKeysOfAClone(t *testing.T) {
	one, err := makeKeys(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	other, err := makeKeys(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := meet(t, one.server, one.client); err != nil {
		t.Errorf("the ends of one clone: %v", err)
	}
	if meet(t, one.server, other.client) == nil {
		t.Error("the ends of two clones trust each other")
	}
}

func meet(t *testing.T, server, client map[string][]byte) error {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	served := make(chan error, 1)
	go func() {
		s := end(t, server)
		s.ClientAuth = tls.RequireAndVerifyClientCert
		served <- tls.Server(a, s).HandshakeContext(t.Context())
		a.Close()
	}()
	c := end(t, client)
	c.ServerName = peerName
	conn := tls.Client(b, c)
	if err := conn.HandshakeContext(t.Context()); err != nil {
		b.Close()
		<-served
		return err
	}
	go func() { _, _ = conn.Read(make([]byte, 1)) }() // what the server says when it refuses
	return <-served
}

func end(t *testing.T, secret map[string][]byte) *tls.Config {
	t.Helper()
	cert, err := tls.X509KeyPair(secret["tls.crt"], secret["tls.key"])
	if err != nil {
		t.Error(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret["ca.crt"])
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ClientCAs: roots, MinVersion: tls.VersionTLS13}
}
