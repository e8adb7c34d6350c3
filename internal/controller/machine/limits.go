package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/virtconfig"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/state"
)

// crowded is why a migration may not begin yet: as many as the configuration allows were asked for before it and have not ended.
// Nothing is written down, so nothing can be forgotten: each migration finds its place by its age. The first of those that a node may
// send take the places of the cluster; one that its node holds back leaves its place to the next, and so does one that no node will have,
// however long that is so.
func (r *Reconciler) crowded(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) (string, error) {
	config, err := virtconfig.Read(ctx, r.reader, r.options.Namespace)
	if err != nil {
		return "", err
	}
	limit := config.Migrations()
	var list kubevirt.VirtualMachineInstanceMigrationList
	if err := r.reader.List(ctx, &list); err != nil {
		return "", fmt.Errorf("list migrations: %w", err)
	}
	all := slices.DeleteFunc(list.Items, func(o kubevirt.VirtualMachineInstanceMigration) bool {
		return o.Ended() || o.UID != m.UID && !earlier(&o, m)
	})
	slices.SortFunc(all, func(a, b kubevirt.VirtualMachineInstanceMigration) int {
		if earlier(&a, &b) {
			return -1
		}
		return 1
	})
	moving, from := 0, map[string]int{}
	for i := range all {
		o := &all[i]
		node, err := r.sourceOf(ctx, o)
		if err != nil {
			return "", err
		}
		this := client.ObjectKeyFromObject(o) == client.ObjectKeyFromObject(m)
		switch {
		case node == "", !this && reasonOf(o.Status.Conditions) == string(state.MigrationUnplaceable): // it sends nothing
		case from[node] >= limit.PerNode && this:
			return fmt.Sprintf("%d guests move away from node %s already, and no more may at once "+
				"(parallelOutboundMigrationsPerNode of the KubeVirt configuration)", from[node], node), nil
		case from[node] >= limit.PerNode:
		case moving >= limit.PerCluster:
			return fmt.Sprintf("%d guests move already, and no more may at once (parallelMigrationsPerCluster of the KubeVirt configuration)", moving), nil
		default:
			from[node]++
			moving++
		}
	}
	return "", nil
}

// sourceOf is the node that a migration moves its guest from; empty: there is no guest.
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

// moveLimits are those that a source is told.
func (r *Reconciler) moveLimits(ctx context.Context) (launch.MoveLimits, error) {
	config, err := virtconfig.Read(ctx, r.reader, r.options.Namespace)
	m := config.Migrations()
	return launch.MoveLimits{Bandwidth: m.Bandwidth, PerGiB: int64(m.PerGiB.Seconds()), Still: int64(m.Progress.Seconds()), Converge: m.Converge}, err
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
