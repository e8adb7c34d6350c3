package installkeys

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/pki"
)

// MakerAuthority is the Secret of the authority that signs for the containers that make volumes, and for us when we ask one.
const MakerAuthority = "berth-volume-ca"

const (
	makerLasts   = 90 * 24 * time.Hour
	makerClient  = "berth-volume-client"
	askingLasts  = 24 * time.Hour
	makerRefresh = time.Minute // how old what we know of the authority may be
)

// Maker makes the keys of containers that make volumes. Each has a certificate for its own name and accepts only clients with a
// certificate of ours. So no other server can answer in its place, and no other client can ask it.
type Maker struct {
	store *Upload // reads and writes Secrets of the installation

	mu     sync.Mutex
	known  map[string][]byte
	when   time.Time
	client *tls.Certificate
	until  time.Time
}

// NewMaker keeps its authority in the namespace of the installation. The reader is not a cached one.
func NewMaker(r client.Reader, w *cluster.Writer, namespace string, c clock.WithTicker) *Maker {
	return &Maker{store: &Upload{Reader: r, Writer: w, Namespace: namespace, Clock: c}}
}

// authority returns the authority that signs, and all trusted ones.
func (m *Maker) authority(ctx context.Context) (map[string][]byte, error) {
	now := m.store.Clock.Now()
	if m.known != nil && now.Sub(m.when) < makerRefresh {
		return m.known, nil
	}
	known, err := m.store.kept(ctx, MakerAuthority)
	if err != nil {
		return nil, err
	}
	m.known, m.when = known, now
	return known, nil
}

// Trusted returns a digest of the authorities that a container has to trust now.
func (m *Maker) Trusted(ctx context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, err := m.authority(ctx)
	if err != nil {
		return "", err
	}
	return digest(a), nil
}

func digest(authority map[string][]byte) string {
	sum := sha256.Sum256(authority[bundleFile])
	return hex.EncodeToString(sum[:8])
}

// Due reports whether a certificate that expires then has to be replaced now.
func (m *Maker) Due(until time.Time) bool { return until.Sub(m.store.Clock.Now()) < makerLasts/3 }

// Serving makes the files of a container: its certificate, which is good for name alone, and the authorities it trusts. It also
// returns an identifier of them and when they expire.
func (m *Maker) Serving(ctx context.Context, name string) (files map[string][]byte, trusted string, until time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, err := m.authority(ctx)
	if err != nil {
		return nil, "", time.Time{}, err
	}
	now := m.store.Clock.Now()
	files, err = issue(a, pki.Leaf{Name: "berth-volume", DNSNames: []string{name}, Use: x509.ExtKeyUsageServerAuth, Lasts: makerLasts}, now)
	return files, digest(a), now.Add(makerLasts), err
}

// Asking returns the TLS configuration to call the container of that name.
func (m *Maker) Asking(ctx context.Context, name string) (*tls.Config, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, err := m.authority(ctx)
	if err != nil {
		return nil, err
	}
	now := m.store.Clock.Now()
	if m.client == nil || m.until.Sub(now) < askingLasts/3 {
		files, err := issue(a, pki.Leaf{Name: makerClient, Use: x509.ExtKeyUsageClientAuth, Lasts: askingLasts}, now)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(files[corev1.TLSCertKey], files[corev1.TLSPrivateKeyKey])
		if err != nil {
			return nil, fmt.Errorf("read our own certificate: %w", err)
		}
		m.client, m.until = &pair, now.Add(askingLasts)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a[bundleFile])
	return &tls.Config{RootCAs: roots, ServerName: name, Certificates: []tls.Certificate{*m.client}, MinVersion: tls.VersionTLS13}, nil
}
