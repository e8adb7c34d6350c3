package installkeys

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/pki"
)

// TestAuthorityIsReplacedWithOverlap walks through three years, day by day. A worker that read the authorities up to two days ago
// and a proxy that read them today, and the other way round, always trust each other's certificates.
func TestAuthorityIsReplacedWithOverlap(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	day := 24 * time.Hour
	var history []map[string][]byte
	signers := map[string]bool{}
	for n := range 3 * 365 {
		now = now.Add(day)
		var have map[string][]byte
		if len(history) > 0 {
			have = history[len(history)-1]
		}
		want, err := rotateAuthority(have, now)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := rotateAuthority(want, now); err != nil || !bytes.Equal(again[bundleFile], want[bundleFile]) {
			t.Fatalf("a second look changes the authorities at %s: %v", now, err)
		}
		history = append(history, want)
		signers[string(want[corev1.TLSCertKey])] = true
		for i := max(0, len(history)-3); i < len(history) && (n%5 == 0 || !bytes.Equal(have[bundleFile], want[bundleFile])); i++ {
			for j := max(0, len(history)-3); j < len(history); j++ {
				trusted(t, history[i], history[j][bundleFile], now)
			}
		}
	}
	if len(signers) < 4 {
		t.Errorf("%d authorities in three years", len(signers))
	}
}

func trusted(t *testing.T, authority map[string][]byte, bundle []byte, now time.Time) {
	t.Helper()
	files, err := issue(authority, pki.Leaf{Name: "w", DNSNames: []string{"w"}, Use: x509.ExtKeyUsageServerAuth, Lasts: workerLasts}, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pki.Parse(files[corev1.TLSCertKey])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	if _, err := c.Verify(x509.VerifyOptions{Roots: pool, DNSName: "w", CurrentTime: now}); err != nil {
		t.Fatalf("at %s: %v", now, err)
	}
}

func TestWorkersCannotPassForTheProxy(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a, err := rotateAuthority(nil, now)
	if err != nil {
		t.Fatal(err)
	}
	files, err := issue(a, pki.Leaf{Name: "worker", DNSNames: []string{"worker"}, Use: x509.ExtKeyUsageServerAuth, Lasts: time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pki.Parse(files[corev1.TLSCertKey])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a[bundleFile])
	_, err = c.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err == nil {
		t.Error("a worker's certificate is good for a client")
	}
}

func TestHostOf(t *testing.T) {
	for address, want := range map[string]string{
		"": "", "https://up.example.com": "up.example.com", "up.example.com": "up.example.com", "up.example.com:8443": "up.example.com",
		"http://10.0.0.1:31001/": "10.0.0.1", "https://[fd00::1]:443": "fd00::1",
	} {
		if got := hostOf(address); got != want {
			t.Errorf("%q: got %q, want %q", address, got, want)
		}
	}
}
