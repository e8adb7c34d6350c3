// Package movekeys makes the keys of two launchers between which a guest moves, for tests.
package movekeys

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/pki"
)

// Pair returns the keys of a source and of a target.
func Pair(t *testing.T) (source, target *tls.Config) {
	t.Helper()
	now := time.Now()
	authority, err := pki.New("move", now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority.Certificate())
	side := func(use x509.ExtKeyUsage) *tls.Config {
		pair, err := authority.Issue(pki.Leaf{Name: "move", DNSNames: []string{"move"}, Use: use, Lasts: time.Hour}, now)
		if err != nil {
			t.Fatal(err)
		}
		c, err := tls.X509KeyPair(pair.Certificate, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS13, ServerName: "move", RootCAs: pool, ClientCAs: pool,
			ClientAuth: tls.RequireAndVerifyClientCert}
	}
	return side(x509.ExtKeyUsageClientAuth), side(x509.ExtKeyUsageServerAuth)
}
