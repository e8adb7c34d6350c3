// Package pki makes certificate authorities and the certificates they sign, as PEM. It does not know where they are kept, who
// uses them or when they have to be replaced.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// skew is how far clocks of nodes may differ.
const skew = 5 * time.Minute

// Pair is a certificate and its key, PEM.
type Pair struct{ Certificate, Key []byte }

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New makes an authority that lasts from now on.
func New(name string, now time.Time, lasts time.Duration) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	t, err := template(name, now, lasts)
	if err != nil {
		return nil, err
	}
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign an authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read an authority: %w", err)
	}
	return &Authority{certificate: certificate, key: key}, nil
}

// Load reads what PEM wrote.
func Load(p Pair) (*Authority, error) {
	certificate, err := Parse(p.Certificate)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(p.Key)
	if block == nil {
		return nil, errors.New("read an authority: there is no key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read an authority's key: %w", err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || !private.PublicKey.Equal(certificate.PublicKey) || !certificate.IsCA {
		return nil, errors.New("read an authority: the key is not that of the certificate, or it may not sign")
	}
	return &Authority{certificate: certificate, key: private}, nil
}

// Parse reads the first certificate of a PEM file.
func Parse(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("read a certificate: there is none")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read a certificate: %w", err)
	}
	return certificate, nil
}

// PEM returns the authority as it is kept.
func (a *Authority) PEM() (Pair, error) { return encode(a.certificate.Raw, a.key) }

// Certificate returns what others trust.
func (a *Authority) Certificate() *x509.Certificate { return a.certificate }

// Leaf names the server or client that a certificate is for.
type Leaf struct {
	Name     string // common name
	DNSNames []string
	IPs      []net.IP
	Use      x509.ExtKeyUsage // server or client
	Lasts    time.Duration
}

// Issue makes a key and signs a certificate for it.
func (a *Authority) Issue(l Leaf, now time.Time) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	t, err := template(l.Name, now, l.Lasts)
	if err != nil {
		return Pair{}, err
	}
	t.DNSNames, t.IPAddresses = l.DNSNames, l.IPs
	t.ExtKeyUsage, t.KeyUsage = []x509.ExtKeyUsage{l.Use}, x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, a.certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign a certificate: %w", err)
	}
	return encode(der, key)
}

// ForServer returns keys for a server at these hosts, signed by an authority of its own that signs nothing else, and that authority's certificate as
// PEM, which clients trust.
func ForServer(name string, hosts []string, now time.Time, lasts time.Duration) (Pair, string, error) {
	authority, err := New(hosts[0], now, lasts)
	if err != nil {
		return Pair{}, "", err
	}
	keys, err := authority.Issue(Leaf{Name: name, DNSNames: hosts, Use: x509.ExtKeyUsageServerAuth, Lasts: lasts}, now)
	return keys, string(PEM(authority.Certificate().Raw)), err
}

func template(name string, now time.Time, lasts time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{"berth"}},
		NotBefore: now.Add(-skew), NotAfter: now.Add(lasts),
	}, nil
}

func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("write a key: %w", err)
	}
	return Pair{
		Certificate: PEM(der), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}, nil
}

// PEM writes a certificate.
func PEM(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }
