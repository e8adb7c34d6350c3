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

// Again is how often the launchers are asked while a guest moves: they cannot speak up by themselves.
const Again = time.Second

// PlaceWithin is how long a node is looked for, as upstream has it.
const PlaceWithin = 5 * time.Minute

// TooLate reports whether no node has had the pod for longer than that.
func (r *Reporter) TooLate(p *corev1.Pod) bool {
	return p != nil && p.Spec.NodeName == "" && r.Clock.Now().Sub(p.CreationTimestamp.Time) > PlaceWithin
}

// Open returns the migration to look at next: of a machine that does not run if offline, of a guest if not. It returns nil if there is
// nothing to do for it, and adds the finalizer first.
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
