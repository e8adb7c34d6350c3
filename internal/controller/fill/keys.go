package fill

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// keysLast is how long the keys of one clone are good for: far longer than any copying, and no clone outlives it
// because every new server gets new ones.
const keysLast = 30 * 24 * time.Hour

// peerName is the name of either end. The authority is made for one clone and signs nothing else, so the name need not
// tell clones apart.
const peerName = "berth-clone"

// pair is the two ends' secrets: tls.crt, tls.key and ca.crt each.
type pair struct{ server, client map[string][]byte }

func makeKeys(now time.Time) (pair, error) {
	ca, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make a key: %w", err)
	}
	authority := template(now, 1)
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, ca.Public(), ca)
	if err != nil {
		return pair{}, fmt.Errorf("sign a certificate: %w", err)
	}
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	var ends [2]map[string][]byte
	for i, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		leaf := template(now, int64(i)+2)
		leaf.DNSNames, leaf.ExtKeyUsage, leaf.KeyUsage = []string{peerName}, []x509.ExtKeyUsage{use}, x509.KeyUsageDigitalSignature
		if ends[i], err = issue(leaf, authority, ca); err != nil {
			return pair{}, err
		}
		ends[i]["ca.crt"] = root
	}
	return pair{server: ends[0], client: ends[1]}, nil
}

func template(now time.Time, serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: peerName},
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(keysLast), // clocks of nodes differ
	}
}

func issue(leaf, authority *x509.Certificate, ca *ecdsa.PrivateKey) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), ca)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write a key: %w", err)
	}
	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}, nil
}
