// Package pki issues the certificates and kubeconfigs of a cluster. What exists is kept, so that a cluster that is started
// again trusts what it trusted before. It knows nothing about who uses which file.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"
)

// validity outlives any test cluster; a state directory older than this is started afresh.
const validity = 365 * 24 * time.Hour

// An Authority signs certificates into a directory.
type Authority struct {
	dir    string
	server string
	cert   *x509.Certificate
	key    crypto.Signer
	now    time.Time
}

// Identity is the subject of a certificate: a server if it has addresses, and always a client.
type Identity struct {
	File   string
	Name   string
	Groups []string
	IPs    []string
	DNS    []string
}

// Open loads the authority in dir, or makes one. server is the URL that kubeconfigs name.
func Open(dir, server string, now time.Time) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory for keys: %w", err)
	}
	a := &Authority{dir: dir, server: server, now: now}
	err := a.load()
	if errors.Is(err, fs.ErrNotExist) {
		return a, a.create()
	}
	if err == nil && now.After(a.cert.NotAfter.Add(-24*time.Hour)) {
		err = fmt.Errorf("the certificates in %s end at %s: run `kubebox down` and start afresh", dir, a.cert.NotAfter.Format(time.DateOnly))
	}
	return a, err
}

func (a *Authority) load() error {
	certPEM, err := os.ReadFile(a.path("ca.crt"))
	if err != nil {
		return fmt.Errorf("read authority: %w", err)
	}
	keyPEM, err := os.ReadFile(a.path("ca.key"))
	if err != nil {
		return fmt.Errorf("read authority: %w", err)
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return fmt.Errorf("the keys in %s are damaged: run `kubebox down` and start afresh", a.dir)
	}
	if a.cert, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return fmt.Errorf("parse authority's certificate: %w", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return fmt.Errorf("parse authority's key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return fmt.Errorf("the authority's key in %s cannot sign", a.dir)
	}
	a.key = signer
	return nil
}

func (a *Authority) create() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make authority's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubebox-ca"},
		NotBefore: a.now.Add(-time.Hour), NotAfter: a.now.Add(validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("sign authority: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("parse authority: %w", err)
	}
	a.key = key
	return a.writePair("ca", der, key)
}

// Issue makes sure that FILE.crt, FILE.key and FILE.kubeconfig exist for that identity.
func (a *Authority) Issue(id Identity) error {
	if _, err := os.Stat(a.path(id.File + ".kubeconfig")); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key of %s: %w", id.File, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fmt.Errorf("choose serial of %s: %w", id.File, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: id.Name, Organization: id.Groups},
		NotBefore: a.now.Add(-time.Hour), NotAfter: a.cert.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, DNSNames: id.DNS,
	}
	for _, ip := range id.IPs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	if len(id.IPs)+len(id.DNS) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign %s: %w", id.File, err)
	}
	if err := a.writePair(id.File, der, key); err != nil {
		return err
	}
	return a.writeKubeconfig(id.File)
}

// ServiceAccounts makes sure that the key pair service account tokens are signed with exists: sa.key and sa.pub.
func (a *Authority) ServiceAccounts() error {
	if _, err := os.Stat(a.path("sa.pub")); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make service account key: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode service account key: %w", err)
	}
	if err := a.write("sa.key", "PRIVATE KEY", private); err != nil {
		return err
	}
	return a.write("sa.pub", "PUBLIC KEY", public)
}

func (a *Authority) writeKubeconfig(file string) error {
	read := func(name string) []byte {
		data, _ := os.ReadFile(a.path(name)) // written a moment ago; an empty field would be refused by its first user
		return data
	}
	type named map[string]any
	out, err := yaml.Marshal(named{
		"apiVersion": "v1", "kind": "Config", "current-context": "kubebox",
		"clusters": []named{{"name": "kubebox", "cluster": named{"server": a.server, "certificate-authority-data": read("ca.crt")}}},
		"users":    []named{{"name": file, "user": named{"client-certificate-data": read(file + ".crt"), "client-key-data": read(file + ".key")}}},
		"contexts": []named{{"name": "kubebox", "context": named{"cluster": "kubebox", "user": file}}},
	})
	if err != nil {
		return fmt.Errorf("encode kubeconfig of %s: %w", file, err)
	}
	if err := os.WriteFile(a.path(file+".kubeconfig"), out, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", file, err)
	}
	return nil
}

func (a *Authority) writePair(name string, cert []byte, key crypto.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key of %s: %w", name, err)
	}
	if err := a.write(name+".key", "PRIVATE KEY", der); err != nil {
		return err
	}
	return a.write(name+".crt", "CERTIFICATE", cert)
}

func (a *Authority) write(name, kind string, der []byte) error {
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (a *Authority) path(name string) string { return filepath.Join(a.dir, name) }
