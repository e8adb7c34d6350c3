package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	migrationsv1 "github.com/berth-vm/berth/api/migrations/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/virtconfig"
	"github.com/berth-vm/berth/internal/decide/migration"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/state"
)

// places are the migrations that this process has let begin: the cache hears of it only later, and of one that was made in the same
// second perhaps after that. After a restart what they say of themselves is enough.
type places struct {
	mu    sync.Mutex
	taken map[types.UID]bool
}

// crowded is why a migration may not begin yet: as many as the configuration allows have begun, or were asked for before it, and have
// not ended. Nothing is written down, so nothing can be forgotten. One that its node holds back leaves its place in the cluster to the
// next, and so does one that no node will have, however long that is so.
func (r *Reconciler) crowded(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) (string, error) {
	config, err := virtconfig.Read(ctx, r.reader, r.options.Namespace)
	if err != nil {
		return "", err
	}
	limit := config.Migrations()
	r.places.mu.Lock()
	defer r.places.mu.Unlock()
	var list kubevirt.VirtualMachineInstanceMigrationList
	if err := r.reader.List(ctx, &list); err != nil {
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
	r.places.taken[m.UID] = true
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
		begun := r.places.taken[o.UID] || o.Status.MigrationState != nil && o.Status.MigrationState.TargetPod != ""
		taken[o.UID] = begun
		if o.UID != m.UID && (begun || earlier(&o, m)) && reasonOf(o.Status.Conditions) != string(state.MigrationUnplaceable) {
			out = append(out, o)
		}
	}
	r.places.taken = taken
	slices.SortFunc(out, func(a, b kubevirt.VirtualMachineInstanceMigration) int {
		if taken[a.UID] != taken[b.UID] {
			return map[bool]int{true: -1, false: 1}[taken[a.UID]]
		}
		if earlier(&a, &b) {
			return -1
		}
		return 1
	})
	return out
}

// sourceOf is the node that a migration moves its guest from, as the instance says: a word that is late costs a turn, and nobody is sent
// there. Empty: there is no guest.
func (r *Reconciler) sourceOf(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) (string, error) {
	if s := m.Status.MigrationState; s != nil && s.SourceNode != "" {
		return s.SourceNode, nil
	}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.reader, m.Namespace, m.Spec.VMIName)
	if err != nil || i == nil {
		return "", err
	}
	return i.Status.NodeName, nil
}

// moveLimits are those that a source is told, and the name of the MigrationPolicy that they are of; empty: none.
func (r *Reconciler) moveLimits(ctx context.Context, i *kubevirt.VirtualMachineInstance) (launcherapi.MoveLimits, string, error) {
	config, err := virtconfig.Read(ctx, r.reader, r.options.Namespace)
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
	if err := r.live.List(ctx, &all); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list migration policies: %w", err)
	}
	if len(all.Items) == 0 {
		return nil, nil
	}
	namespace, err := cluster.Get[corev1.Namespace](ctx, r.live, "", i.Namespace)
	if err != nil || namespace == nil {
		return nil, err
	}
	return migration.Policy(all.Items, i.Labels, namespace.Labels), nil
}

// configuration returns the limits of a migration in upstream's fields.
func configuration(l launcherapi.MoveLimits) *kubevirt.MigrationConfiguration {
	out := &kubevirt.MigrationConfiguration{
		BandwidthPerMigration: resource.NewQuantity(l.Bandwidth, resource.BinarySI), CompletionTimeoutPerGiB: new(int64(l.Each().Seconds())),
		ProgressTimeout: new(int64(l.Stall().Seconds())), AllowAutoConverge: &l.Converge, AllowPostCopy: new(false),
	}
	if l.Downtime > 0 {
		out.MaxDowntimeMs = &l.Downtime
	}
	return out
}

// narrowed are the labels that a node must have: what the machine says counts, and the others come besides.
func narrowed(own, added map[string]string) map[string]string {
	if len(added) == 0 {
		return own
	}
	all := maps.Clone(added)
	maps.Copy(all, own)
	return all
}

// migrationLabels are what clients find the migrations of an instance by. A name that is too long to be a label has none.
func migrationLabels(m *kubevirt.VirtualMachineInstanceMigration) map[string]string {
	if len(validation.IsValidLabelValue(m.Spec.VMIName)) > 0 {
		return nil
	}
	return map[string]string{kubevirt.LabelMigrated: m.Spec.VMIName}
}
