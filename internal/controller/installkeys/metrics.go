package installkeys

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/render"
)

// The certificates of the metrics servers: a client that sends a token must know which server it sends it to.
const (
	// MetricsAuthority is the Secret of the authority that signs them, and the ConfigMap with what Prometheus is to trust.
	MetricsAuthority = "berth-metrics-ca"
	// MetricsSecret is the Secret with a certificate, in each namespace that has programs with metrics.
	MetricsSecret = "berth-metrics" //nolint:gosec // G101: the name of a Secret, not a secret
	// NodeNamespace is where the agents of nodes run.
	NodeNamespace = "berth-node"

	metricsLasts = 30 * 24 * time.Hour
)

// Metrics keeps the certificates of metrics.
type Metrics struct {
	store *Upload // reads and writes Secrets of the installation
	nodes bool
}

// NewMetrics keeps its authority in the namespace of the installation; nodes: there are agents of nodes. The reader is not a cached one.
func NewMetrics(r client.Reader, w *cluster.Writer, namespace string, nodes bool) *Metrics {
	return &Metrics{store: &Upload{Reader: r, Writer: w, Namespace: namespace, Clock: clock.RealClock{}}, nodes: nodes}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only one makes keys.
func (m *Metrics) NeedLeaderElection() bool { return true }

// Start keeps everything up to date as long as ctx lives.
func (m *Metrics) Start(ctx context.Context) error {
	tick := m.store.Clock.NewTicker(uploadEvery)
	defer tick.Stop()
	for {
		if err := m.Sync(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "keep the certificates of metrics") // tried again in a minute
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Sync makes what is missing or about to end. It may be repeated.
func (m *Metrics) Sync(ctx context.Context) error {
	authority, err := m.store.kept(ctx, MetricsAuthority)
	if err != nil {
		return err
	}
	if err := m.store.publish(ctx, MetricsAuthority, map[string]string{bundleFile: string(authority[bundleFile])}); err != nil {
		return err
	}
	if err := m.store.certificate(ctx, MetricsSecret, authority, metricsLeaf(m.store.Namespace)); err != nil || !m.nodes {
		return err
	}
	return m.node(ctx, authority)
}

// metricsLeaf returns the certificate for the programs of a namespace, whichever Service leads to them.
func metricsLeaf(namespace string) pki.Leaf {
	return pki.Leaf{Name: MetricsSecret, DNSNames: []string{MetricsSecret + "." + namespace + ".svc"}, Use: x509.ExtKeyUsageServerAuth, Lasts: metricsLasts}
}

// node keeps the certificate of the agents, in their own namespace, where it can be read and replaced but not changed.
func (m *Metrics) node(ctx context.Context, authority map[string][]byte) error {
	var have corev1.Secret
	err := m.store.Reader.Get(ctx, types.NamespacedName{Namespace: NodeNamespace, Name: MetricsSecret}, &have)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read secret %s/%s: %w", NodeNamespace, MetricsSecret, err)
	}
	leaf, now := metricsLeaf(NodeNamespace), m.store.Clock.Now()
	if serves(have.Data, authority, leaf, now) {
		return nil
	}
	files, err := issue(authority, leaf, now)
	if err != nil {
		return err
	}
	return m.store.Writer.Replace(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: NodeNamespace, Name: MetricsSecret, Labels: render.Labels("")}, Type: corev1.SecretTypeTLS, Data: files,
	})
}
