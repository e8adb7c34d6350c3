package clone

import (
	"crypto/x509"
	"time"

	"github.com/berth-vm/berth/internal/pki"
)

// keysLast is how long the keys of one clone are good for: far longer than any copying, and no clone outlives it
// because every new server gets new ones.
const keysLast = 30 * 24 * time.Hour

// peerName is the name in the certificates of both ends. The authority is made for one clone and signs nothing else, so the name
// need not identify the clone.
const peerName = "berth-clone"

// keyPair is the two ends' secrets: tls.crt, tls.key and ca.crt each.
type keyPair struct{ server, client map[string][]byte }

func makeKeys(now time.Time) (keyPair, error) {
	authority, err := pki.New(peerName, now, keysLast)
	if err != nil {
		return keyPair{}, err
	}
	root := pki.PEM(authority.Certificate().Raw)
	var ends [2]map[string][]byte
	for i, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		end, err := authority.Issue(pki.Leaf{Name: peerName, DNSNames: []string{peerName}, Use: use, Lasts: keysLast}, now)
		if err != nil {
			return keyPair{}, err
		}
		ends[i] = map[string][]byte{"tls.crt": end.Certificate, "tls.key": end.Key, "ca.crt": root}
	}
	return keyPair{server: ends[0], client: ends[1]}, nil
}
