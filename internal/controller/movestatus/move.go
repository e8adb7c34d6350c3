package movestatus

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
)

// Finalizer keeps a deleted migration until it is cancelled. It has upstream's name.
const Finalizer = "kubevirt.io/migrationJobFinalize"

// Again is how often the launchers are polled while a guest moves: they cannot send events.
const Again = time.Second

// PlaceWithin is how long to wait for a node, as upstream does.
const PlaceWithin = 5 * time.Minute

// TooLate reports whether no node has had the pod for longer than that.
func (r *Reporter) TooLate(p *corev1.Pod) bool {
	return p != nil && p.Spec.NodeName == "" && r.Clock.Now().Sub(p.CreationTimestamp.Time) > PlaceWithin
}

// Open reads the migration of a request: of a stopped machine if offline is set, else of a running guest. It adds the finalizer,
// and returns nil if there is nothing to do for the migration.
func (r *Reporter) Open(ctx context.Context, req ctrl.Request, offline bool) (*kubevirt.VirtualMachineInstanceMigration, error) {
	m, err := cluster.Get[kubevirt.VirtualMachineInstanceMigration](ctx, r.Cached, req.Namespace, req.Name)
	if err != nil || m == nil || (m.Annotations[kubevirt.AnnOffline] == "true") != offline {
		return nil, err
	}
	kept := slices.Contains(m.Finalizers, Finalizer)
	switch {
	case m.DeletionTimestamp != nil && !kept:
		return nil, nil
	case m.DeletionTimestamp == nil && !kept && !m.Ended():
		return nil, r.Cluster.Mark(ctx, m, cluster.Marks{Finalizers: []string{Finalizer}, Labels: Labels(m)})
	}
	return m, nil
}
