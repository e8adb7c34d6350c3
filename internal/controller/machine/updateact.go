package machine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// updateOwner owns the mark of claims that disks are sent into.
const updateOwner client.FieldOwner = "berth-update"

// updatedClaims are the claims that a target has for volumes that their owner changed, by volume.
func updatedClaims(target *corev1.Pod) map[string]string {
	m, out := launcherpod.Machine(target), map[string]string{}
	for _, v := range m.Spec.Volumes {
		if m.Updated[v.Name] != "" {
			out[v.Name], _ = render.ClaimOf(v)
		}
	}
	return out
}

// withUpdates is what the target's pod is made of if volumes changed: the instance as it will be.
func (s *run) withUpdates(next render.Machine) render.Machine {
	for _, c := range s.updates.due() {
		if next.Updated == nil {
			next.Instance, next.Updated = next.Instance.DeepCopy(), map[string]string{}
		}
		next.Updated[c.volume] = c.from.claim.Name
		setSource(next.Instance.Spec.Volumes, c.to)
	}
	return next
}

// updatedHere: a volume was changed to a claim that is on this node, which the guest is on, and on no other. So its target has to be there too.
func (r *Reconciler) updatedHere(ctx context.Context, s *run, node string) (bool, error) {
	for _, c := range s.updates.due() {
		if here, err := r.isOn(ctx, c.claim, node); here || err != nil {
			return here, err
		}
	}
	return false, nil
}

func setSource(volumes []kubevirt.Volume, to kubevirt.Volume) {
	for n := range volumes {
		if volumes[n].Name == to.Name {
			volumes[n].VolumeSource = *to.VolumeSource.DeepCopy()
		}
	}
}

// isOn: the claim's volume is on that node, and nowhere else.
func (r *Reconciler) isOn(ctx context.Context, c *corev1.PersistentVolumeClaim, name string) (bool, error) {
	pv, err := r.volumeOf(ctx, c)
	if err != nil || pv == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return false, err
	}
	in, err := nodeselect.In(ctx, r.reader, pv.Spec.NodeAffinity.Required)
	return len(in) == 1 && in[0].Name == name, err
}

// onlyOn is the part of the cluster that is one node.
func onlyOn(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}}}
}

// markReceiving notes on the claims that a target is about to write to that they do not have all of a disk yet.
func (r *Reconciler) markReceiving(ctx context.Context, v *move) error {
	was := launcherpod.Machine(v.target).Updated
	for volume, name := range updatedClaims(v.target) {
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, v.migration.Namespace, name)
		if err != nil {
			return err
		}
		if c == nil {
			return notYet(name)
		}
		said := fmt.Sprintf("volume %s of machine %s, from PersistentVolumeClaim %s", volume, v.run.instance.Name, was[volume])
		if c.Annotations[render.AnnReceives] == said {
			continue
		}
		if err := r.cluster.MarkAs(ctx, updateOwner, c, cluster.Marks{Annotations: map[string]string{render.AnnReceives: said}}); err != nil {
			return err
		}
	}
	return nil
}

// adopt writes that a guest has come to a launcher with changed volumes: on its instance, which claims its disks are in now, and that these
// have all of them. It is written before anything is let go that says the same.
func (r *Reconciler) adopt(ctx context.Context, target *corev1.Pod, i *kubevirt.VirtualMachineInstance) error {
	m := launcherpod.Machine(target)
	if len(m.Updated) == 0 {
		return nil
	}
	is, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.live, i.Namespace, i.Name)
	if err != nil {
		return err
	}
	if is != nil && is.UID == i.UID {
		next := is.DeepCopy()
		for _, v := range m.Spec.Volumes {
			at := slices.IndexFunc(is.Spec.Volumes, func(o kubevirt.Volume) bool { return o.Name == v.Name })
			if at < 0 || m.Updated[v.Name] == "" {
				continue
			}
			if has, _ := render.ClaimOf(is.Spec.Volumes[at]); has == m.Updated[v.Name] {
				setSource(next.Spec.Volumes, v)
			}
		}
		if !equality.Semantic.DeepEqual(is.Spec, next.Spec) {
			if err := r.cluster.Change(ctx, is, next); err != nil {
				return err
			}
		}
	}
	for _, name := range updatedClaims(target) {
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, i.Namespace, name)
		if err != nil {
			return err
		}
		if c == nil || c.Annotations[render.AnnReceives] == "" {
			continue
		}
		if err := r.cluster.MarkAs(ctx, updateOwner, c, cluster.Marks{}); err != nil {
			return err
		}
	}
	return nil
}

// partial is why a machine cannot be started with a claim that a disk was being sent into; empty if it can.
func partial(c *corev1.PersistentVolumeClaim) string {
	if c == nil || c.Annotations[render.AnnReceives] == "" {
		return ""
	}
	return fmt.Sprintf("PersistentVolumeClaim %s has only a part of %s, since the machine stopped before all of it was sent: "+
		"change the volume back to the claim that it was in, and restart the machine", c.Name, c.Annotations[render.AnnReceives])
}
