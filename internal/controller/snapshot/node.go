package snapshot

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/nodes"
	"github.com/berth-vm/berth/internal/decide/place"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

// nodeFor is where to make the volume of a staged claim. Nobody uses such a claim, so a class that waits for a consumer would wait for
// ever: the node is the one that was chosen for the claim when the snapshot was taken, or else one where the snapshot is and the
// machine may run. Empty: the class needs none, or there is none.
func (r *Reconciler) nodeFor(ctx context.Context, b *back, c returning) (string, error) {
	was := c.claim.ObjectMeta.Annotations[names.SelectedNode]
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
	pod := b.likeness()
	disks := b.disksThere()
	fits := func(n corev1.Node) bool {
		return !nodes.Away(&n) && !n.Spec.Unschedulable && place.Refuses(&n, nil, pod, disks) == place.Fits
	}
	if at := slices.IndexFunc(in, fits); at >= 0 {
		return in[at].Name, nil
	}
	return "", nil
}

// nodesOf are the nodes where the data of a snapshot can be used, as far as anybody says.
func (r *Reconciler) nodesOf(ctx context.Context, c returning) ([]corev1.Node, error) {
	var home *corev1.NodeSelector
	if c.taken != nil {
		content, err := volumesnapshot.ContentOf(ctx, cluster.Reads(r.live), c.taken)
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
		return nodes.In(ctx, r.live, home)
	}
	var all corev1.NodeList
	if err := r.live.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return all.Items, nil
}

// likeness is a pod that may run where the machine may. It asks for no room: the machine runs when there is some.
func (b *back) likeness() *corev1.Pod {
	pod := &corev1.Pod{}
	if t := b.was().Spec.Template; t != nil {
		pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations = t.Spec.NodeSelector, t.Spec.Affinity, t.Spec.Tolerations
	}
	return pod
}

// disksThere are the volumes that were made for the restore so far: all have to be usable on one node.
func (b *back) disksThere() []corev1.PersistentVolume {
	var out []corev1.PersistentVolume
	for _, c := range b.claims {
		if pv := c.staged.volume; pv != nil {
			out = append(out, *pv)
		}
	}
	return out
}
