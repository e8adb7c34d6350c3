package handover

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// UpdateOwner owns the mark of claims that disks are sent into.
const UpdateOwner client.FieldOwner = "berth-update"

// SetSource gives the volume of the same name the source of another.
func SetSource(volumes []kubevirt.Volume, to kubevirt.Volume) {
	for n := range volumes {
		if volumes[n].Name == to.Name {
			volumes[n].VolumeSource = *to.VolumeSource.DeepCopy()
		}
	}
}

// adopt records that a guest has moved to a launcher with changed volumes: on its instance, the claims that its disks are in now,
// and that these claims are complete. It does so before the source launcher, which has the only other record, is released.
func (r *Recorder) adopt(ctx context.Context, target *corev1.Pod, i *kubevirt.VirtualMachineInstance) error {
	m := launcherpod.Machine(target)
	if len(m.Updated) == 0 {
		return nil
	}
	is, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.Live, i.Namespace, i.Name)
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
				SetSource(next.Spec.Volumes, v)
			}
		}
		if !equality.Semantic.DeepEqual(is.Spec, next.Spec) {
			if err := r.Cluster.Change(ctx, is, next); err != nil {
				return err
			}
		}
	}
	for _, name := range diskstate.UpdatedClaims(target) {
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Live, i.Namespace, name)
		if err != nil {
			return err
		}
		if c == nil || c.Annotations[render.AnnReceives] == "" {
			continue
		}
		if err := r.Cluster.MarkAs(ctx, UpdateOwner, c, cluster.Marks{}); err != nil {
			return err
		}
	}
	return nil
}
