package installkeys

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/pki"
)

// The authority of uploads signs three kinds of certificates: the proxy's own, the one it shows to workers, and one for each
// worker. It is replaced long before it ends, in two steps, so that no program ever meets a certificate it does not trust: the
// next authority is published first, and signs only after all programs have had the time to read it.
const (
	authorityLasts = 365 * 24 * time.Hour
	authorityEarly = authorityLasts / 3 // how long before the end the next one is made
	authorityKnown = 3 * 24 * time.Hour // how long it is published before it signs; workers hear of it every day
)

// Files of the authority's Secret besides tls.crt and tls.key, which are the authority that signs.
const (
	bundleFile = "ca.crt" // all trusted authorities
	nextCert   = "next.crt"
	nextKey    = "next.key"
)

// rotateAuthority returns what the authority's Secret must hold now, given what it holds. It is pure but for making keys.
func rotateAuthority(have map[string][]byte, now time.Time) (map[string][]byte, error) {
	want := maps.Clone(have)
	if want == nil {
		want = map[string][]byte{}
	}
	current, err := pki.Load(pki.Pair{Certificate: want[corev1.TLSCertKey], Key: want[corev1.TLSPrivateKeyKey]})
	if err != nil || !now.Before(current.Certificate().NotAfter) {
		// there is none yet, or the present one can no longer be used
		if err := putAuthority(want, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, now); err != nil {
			return nil, err
		}
		delete(want, nextCert)
		delete(want, nextKey)
		return bundle(want, now), nil
	}
	next, err := pki.Load(pki.Pair{Certificate: want[nextCert], Key: want[nextKey]})
	switch {
	case err == nil && now.Sub(next.Certificate().NotBefore) > authorityKnown:
		want[corev1.TLSCertKey], want[corev1.TLSPrivateKeyKey] = want[nextCert], want[nextKey]
		delete(want, nextCert)
		delete(want, nextKey)
	case err != nil && current.Certificate().NotAfter.Sub(now) < authorityEarly:
		if err := putAuthority(want, nextCert, nextKey, now); err != nil {
			return nil, err
		}
	}
	return bundle(want, now), nil
}

func putAuthority(into map[string][]byte, cert, key string, now time.Time) error {
	a, err := pki.New(fmt.Sprintf("berth-upload-ca@%d", now.Unix()), now, authorityLasts)
	if err != nil {
		return err
	}
	p, err := a.PEM()
	if err != nil {
		return err
	}
	into[cert], into[key] = p.Certificate, p.Key
	return nil
}

// bundle returns the certificates to trust: the authority that signs, the next one, and former ones until they expire.
func bundle(want map[string][]byte, now time.Time) map[string][]byte {
	all := append(bytes.Clone(want[corev1.TLSCertKey]), want[nextCert]...)
	for rest := want[bundleFile]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		text := pki.PEM(block.Bytes)
		if err == nil && now.Before(c.NotAfter) && !bytes.Contains(all, text) {
			all = append(all, text...)
		}
	}
	want[bundleFile] = all
	return want
}
