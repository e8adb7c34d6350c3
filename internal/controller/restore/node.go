package restore

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/decide/clonenode"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

// nodeFor returns the node to make the volume of a staged claim on. No pod uses such a claim, so a class that waits for a
// consumer would wait for ever. The node is the one that was chosen for the claim when the snapshot was taken, or else one where
// the snapshot is available and the machine may run; "" if the class needs none, or there is none.
func (r *Reconciler) nodeFor(ctx context.Context, b *observed, c restoredClaim) (string, error) {
	was := c.Claim.ObjectMeta.Annotations[names.SelectedNode]
	if was != "" {
		node, err := cluster.Get[corev1.Node](ctx, r.live, "", was)
		if err != nil || node != nil {
			return was, err
		}
	}
	if !claim.Waits(c.staged.class) {
		return "", nil
	}
	in, err := r.nodesOf(ctx, c)
	if err != nil {
		return "", err
	}
	pod := b.placedPod()
	disks := b.disksThere()
	fits := func(n corev1.Node) bool {
		return !nodeselect.Away(&n) && !n.Spec.Unschedulable && clonenode.Refuses(&n, nil, pod, disks) == clonenode.Fits
	}
	if at := slices.IndexFunc(in, fits); at >= 0 {
		return in[at].Name, nil
	}
	return "", nil
}

// nodesOf returns the nodes where the data of a snapshot can be used, as far as the snapshot and its volume say.
func (r *Reconciler) nodesOf(ctx context.Context, c restoredClaim) ([]corev1.Node, error) {
	var home *corev1.NodeSelector
	if c.Taken != nil {
		content, err := volumesnapshot.ContentOf(ctx, cluster.Reads(r.live), c.Taken)
		if err != nil {
			return nil, err
		}
		home = volumesnapshot.Home(content)
	}
	if home == nil {
		pv, err := r.volumeOf(ctx, c.now)
		if err != nil {
			return nil, err
		}
		if belongsTo(pv, c.now) && pv.Spec.NodeAffinity != nil {
			home = pv.Spec.NodeAffinity.Required
		}
	}
	if home != nil {
		return nodeselect.In(ctx, r.live, home)
	}
	var all corev1.NodeList
	if err := r.live.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return all.Items, nil
}

// placedPod returns a pod that may run where the machine may. It asks for no room: the machine runs when there is some.
func (b *observed) placedPod() *corev1.Pod {
	pod := &corev1.Pod{}
	if t := b.was().Spec.Template; t != nil {
		pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations = t.Spec.NodeSelector, t.Spec.Affinity, t.Spec.Tolerations
	}
	return pod
}

// disksThere returns the volumes that were made for the restore so far: one node must be able to use all of them.
func (b *observed) disksThere() []corev1.PersistentVolume {
	var out []corev1.PersistentVolume
	for _, c := range b.claims {
		if pv := c.staged.volume; pv != nil {
			out = append(out, *pv)
		}
	}
	return out
}
