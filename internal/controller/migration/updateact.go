package migration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/handover"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// withUpdates returns the instance that the target's pod is made from if volumes changed.
func withUpdates(s *observed.Instance, next render.Machine) render.Machine {
	for _, c := range s.Updates.Due() {
		if next.Updated == nil {
			next.Instance, next.Updated = next.Instance.DeepCopy(), map[string]string{}
		}
		next.Updated[c.Volume] = c.From.Claim.Name
		handover.SetSource(next.Instance.Spec.Volumes, c.To)
	}
	return next
}

// updatedHere: a volume was changed to a claim that is on this node, which the guest is on, and on no other. So its target has to be there too.
func (r *Reconciler) updatedHere(ctx context.Context, s *observed.Instance, node string) (bool, error) {
	for _, c := range s.Updates.Due() {
		if here, err := r.isOn(ctx, c.Claim, node); here || err != nil {
			return here, err
		}
	}
	return false, nil
}

// isOn: the claim's volume is on that node, and nowhere else.
func (r *Reconciler) isOn(ctx context.Context, c *corev1.PersistentVolumeClaim, name string) (bool, error) {
	pv, err := r.Read.VolumeOf(ctx, c)
	if err != nil || pv == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return false, err
	}
	in, err := nodeselect.In(ctx, r.Read.Cached, pv.Spec.NodeAffinity.Required)
	return len(in) == 1 && in[0].Name == name, err
}

// OnlyOn is the part of the cluster that is one node.
func OnlyOn(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}}}
}

// markReceiving records on the claims that a target is about to write to that they are incomplete.
func (r *Reconciler) markReceiving(ctx context.Context, v *Move) error {
	was := launcherpod.Machine(v.Target).Updated
	for volume, name := range diskstate.UpdatedClaims(v.Target) {
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Read.Live, v.Migration.Namespace, name)
		if err != nil {
			return err
		}
		if c == nil {
			return diskstate.NotYet(name)
		}
		said := fmt.Sprintf("volume %s of machine %s, from PersistentVolumeClaim %s", volume, v.Run.Object.Name, was[volume])
		if c.Annotations[render.AnnReceives] == said {
			continue
		}
		if err := r.Cluster.MarkAs(ctx, handover.UpdateOwner, c, cluster.Marks{Annotations: map[string]string{render.AnnReceives: said}}); err != nil {
			return err
		}
	}
	return nil
}
