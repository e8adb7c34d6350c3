package diskstate

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// A claim that comes back from a backup names a VolumeSnapshot, and its driver can make the volume only where the data of the snapshot is.
// The scheduler does not know that: the pod that binds the claim is kept to these nodes.

// observeSource finds out where the driver of a claim that is not bound yet can fill it. The data side places the clones that it makes, and
// may choose another way to make them.
func (r *Reader) observeSource(ctx context.Context, d *Disk) error {
	c := d.Claim
	if c == nil || c.Spec.VolumeName != "" || clonesource.PopulatedByUs(c) {
		return nil
	}
	if d.Volume != nil {
		if _, cloned := clonesource.OfSource(c.Namespace, d.Volume.Spec.Source); cloned || d.Volume.Spec.SourceRef != nil {
			return nil
		}
	}
	reads := cluster.Reads(r.Live)
	found, err := clonesource.DriverSource(ctx, reads, c)
	if err != nil || found.GroupKind() != clonesource.Snapshot.GroupKind() && !found.There() {
		return err
	}
	made := fmt.Sprintf("PersistentVolumeClaim %s is made of %s %s", c.Name, found.Kind, found.Name)
	if lacks := found.Lacks(); lacks != "" && found.Claim == nil { // where its data is will be known then
		d.Unready = true
		if d.State < machine.Filling {
			d.State, d.Why = machine.Filling, made+": "+lacks
		}
		return nil
	}
	if d.Beside, err = found.Home(ctx, reads); err == nil && d.Beside != nil {
		d.BesideWhy = made + ", which is on " + nodesText(d.Beside)
	}
	return err
}

// nodesText names the nodes of a node selector, if it lists them.
func nodesText(part *corev1.NodeSelector) string {
	var names []string
	for _, t := range part.NodeSelectorTerms {
		for _, f := range t.MatchFields {
			names = append(names, f.Values...)
		}
		for _, e := range t.MatchExpressions {
			if e.Key == corev1.LabelHostname {
				names = append(names, e.Values...)
			}
		}
	}
	if len(names) == 0 {
		return "some nodes only"
	}
	return "node " + strings.Join(names, ", ")
}
