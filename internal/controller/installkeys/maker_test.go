package installkeys

import (
	"crypto/x509"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktest "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/pki"
)

// TestKeysOfContainers: a container's certificate is good for its own name alone and for serving alone, a second process trusts it, and
// what it trusts is told by its digest, which changes before another authority signs.
func TestKeysOfContainers(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	clock := clocktest.NewFakeClock(time.Unix(1_700_000_000, 0))
	w := cluster.New(c, nil, clock)
	m := NewMaker(c, w, "berth", clock)
	files, trusted, until, err := m.Serving(t.Context(), "one.volume.berth.dev")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := pki.Parse(files[corev1.TLSCertKey])
	if err != nil {
		t.Fatal(err)
	}
	asking, err := NewMaker(c, w, "berth", clock).Asking(t.Context(), "one.volume.berth.dev") // another process
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, use x509.ExtKeyUsage) error {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: asking.RootCAs, DNSName: name, CurrentTime: clock.Now(), KeyUsages: []x509.ExtKeyUsage{use}})
		return err
	}
	if err := check("one.volume.berth.dev", x509.ExtKeyUsageServerAuth); err != nil {
		t.Error(err)
	}
	if check("two.volume.berth.dev", x509.ExtKeyUsageServerAuth) == nil || check("one.volume.berth.dev", x509.ExtKeyUsageClientAuth) == nil {
		t.Error("a container can pass for another, or for us")
	}
	if !leaf.NotAfter.Equal(until) || m.Due(until) {
		t.Errorf("it ends at %s and not at %s, or is due", leaf.NotAfter, until)
	}
	for day := 0; ; day++ {
		clock.Step(24 * time.Hour)
		now, err := m.Trusted(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		config, err := m.Asking(t.Context(), "one.volume.berth.dev")
		if err != nil {
			t.Fatal(err)
		}
		own, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		old := x509.NewCertPool()
		old.AppendCertsFromPEM(files[bundleFile])
		if _, err := own.Verify(x509.VerifyOptions{Roots: old, CurrentTime: clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Fatalf("day %d: we are not trusted any more, and nobody said so: %v", day, err)
		}
		if now != trusted {
			return // the container gets new files from here on
		}
		if day > 400 {
			t.Fatal("the authority is never replaced")
		}
	}
}
