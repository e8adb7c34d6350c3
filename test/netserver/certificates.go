package netserver

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-vm/berth/internal/pki"
)

// Certificates are an authority's own certificate and a client's, in PEM.
type Certificates struct {
	CA     []byte
	Client pki.Pair
}

// newCertificates makes an authority, a server's certificate for the address and a client's, and leaves in dir what the
// server needs, under the names that gnutls programs know: ca-cert.pem, server-cert.pem and server-key.pem.
func newCertificates(address, dir string) (*Certificates, error) {
	now := time.Now()
	ca, err := pki.New("test ca", now, 24*time.Hour)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	own, err := ca.PEM()
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	issue := func(name string, use x509.ExtKeyUsage) (pki.Pair, error) {
		return ca.Issue(pki.Leaf{Name: name, IPs: []net.IP{net.ParseIP(address)}, Use: use, Lasts: 24 * time.Hour}, now)
	}
	server, err := issue("server", x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, fmt.Errorf("make the server's certificate: %w", err)
	}
	client, err := issue("client", x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, fmt.Errorf("make the client's certificate: %w", err)
	}
	for name, content := range map[string][]byte{"ca-cert.pem": own.Certificate, "server-cert.pem": server.Certificate, "server-key.pem": server.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("write a certificate: %w", err)
		}
	}
	return &Certificates{CA: own.Certificate, Client: client}, nil
}
