package migration

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	migrationsv1 "github.com/berth-vm/berth/api/migrations/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/controller/virtconfig"
	"github.com/berth-vm/berth/internal/decide/migration"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/state"
)

// Places are the migrations that this process has allowed to begin, because the cache shows that only later. After a restart the
// status of the migrations is enough.
type Places struct {
	mu    sync.Mutex
	Taken map[types.UID]bool
}

// Crowded returns why a migration may not begin yet: as many as the configuration allows have begun, or were requested before it,
// and have not ended. It stores no state. A migration that waits for the limit of its node does not take a place of the cluster's
// limit, and neither does one for which no node is found.
func (r *Reconciler) Crowded(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) (string, error) {
	config, err := virtconfig.Read(ctx, r.Read.Cached, r.Read.Options.Namespace)
	if err != nil {
		return "", err
	}
	limit := config.Migrations()
	r.Places.mu.Lock()
	defer r.Places.mu.Unlock()
	var list kubevirt.VirtualMachineInstanceMigrationList
	if err := r.Read.Cached.List(ctx, &list); err != nil {
		return "", fmt.Errorf("list migrations: %w", err)
	}
	before := r.before(list.Items, m)
	at, err := r.sourceOf(ctx, m)
	if err != nil || at == "" {
		return "", err // it has nothing to send, and says so itself
	}
	moving, from := 0, map[string]int{}
	for i := range before {
		node, err := r.sourceOf(ctx, &before[i])
		if err != nil {
			return "", err
		}
		if node != "" && from[node] < limit.PerNode {
			from[node]++
			moving++
		}
	}
	switch {
	case from[at] >= limit.PerNode:
		return fmt.Sprintf("%d guests move away from node %s already, and no more may at once "+
			"(parallelOutboundMigrationsPerNode of the KubeVirt configuration)", from[at], at), nil
	case moving >= limit.PerCluster:
		return fmt.Sprintf("%d guests move already, and no more may at once (parallelMigrationsPerCluster of the KubeVirt configuration)", moving), nil
	}
	r.Places.Taken[m.UID] = true
	return "", nil
}

// before are the migrations that come before this one, in their order. What has ended is forgotten.
func (r *Reconciler) before(all []kubevirt.VirtualMachineInstanceMigration, m *kubevirt.VirtualMachineInstanceMigration) []kubevirt.VirtualMachineInstanceMigration {
	taken := map[types.UID]bool{}
	var out []kubevirt.VirtualMachineInstanceMigration
	for _, o := range all {
		if o.Ended() {
			continue
		}
		begun := r.Places.Taken[o.UID] || o.Status.MigrationState != nil && o.Status.MigrationState.TargetPod != ""
		taken[o.UID] = begun
		if o.UID != m.UID && (begun || observed.Earlier(&o, m)) && report.ReasonOf(o.Status.Conditions) != string(state.MigrationUnplaceable) {
			out = append(out, o)
		}
	}
	r.Places.Taken = taken
	slices.SortFunc(out, func(a, b kubevirt.VirtualMachineInstanceMigration) int {
		if taken[a.UID] != taken[b.UID] {
			return map[bool]int{true: -1, false: 1}[taken[a.UID]]
		}
		if observed.Earlier(&a, &b) {
			return -1
		}
		return 1
	})
	return out
}

// sourceOf returns the node that a migration moves its guest from, as the instance's status says. A late status costs only a turn,
// because it decides nothing about the data. Empty: there is no guest.
func (r *Reconciler) sourceOf(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) (string, error) {
	if s := m.Status.MigrationState; s != nil && s.SourceNode != "" {
		return s.SourceNode, nil
	}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.Read.Cached, m.Namespace, m.Spec.VMIName)
	if err != nil || i == nil {
		return "", err
	}
	return i.Status.NodeName, nil
}

// Limits returns the limits for the source of a migration, and the name of the MigrationPolicy that they are from; empty: none.
func (r *Reconciler) Limits(ctx context.Context, i *kubevirt.VirtualMachineInstance) (launcherapi.MoveLimits, string, error) {
	config, err := virtconfig.Read(ctx, r.Read.Cached, r.Read.Options.Namespace)
	if err != nil {
		return launcherapi.MoveLimits{}, "", err
	}
	m := config.Migrations()
	limits := launcherapi.MoveLimits{Bandwidth: m.Bandwidth, PerGiB: int64(m.PerGiB.Seconds()), Still: int64(m.Progress.Seconds()), Converge: m.Converge, Downtime: m.Downtime}
	policy, err := r.policyOf(ctx, i)
	if err != nil || policy == nil {
		return limits, "", err
	}
	s := policy.Spec
	if q := s.BandwidthPerMigration; q != nil {
		limits.Bandwidth = max(q.Value(), 0)
	}
	limits.PerGiB = ptr.Deref(s.CompletionTimeoutPerGiB, limits.PerGiB)
	limits.Converge = ptr.Deref(s.AllowAutoConverge, limits.Converge)
	limits.Downtime = ptr.Deref(s.MaxDowntimeMs, limits.Downtime)
	return limits, policy.Name, nil
}

// policyOf is the MigrationPolicy of an instance; nil: none. The server is asked: a migration is rare, and has its limits once.
func (r *Reconciler) policyOf(ctx context.Context, i *kubevirt.VirtualMachineInstance) (*migrationsv1.MigrationPolicy, error) {
	var all migrationsv1.MigrationPolicyList
	if err := r.Read.Live.List(ctx, &all); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list migration policies: %w", err)
	}
	if len(all.Items) == 0 {
		return nil, nil
	}
	namespace, err := cluster.Get[corev1.Namespace](ctx, r.Read.Live, "", i.Namespace)
	if err != nil || namespace == nil {
		return nil, err
	}
	return migration.Policy(all.Items, i.Labels, namespace.Labels), nil
}
