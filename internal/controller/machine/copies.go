package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/pkg/claim"
)

// observeCopies finds where the copies of the machine's volumes are to be, and how much room each has. A launcher has that
// already.
func (r *Reconciler) observeCopies(ctx context.Context, s *run) error {
	copied := func(v kubevirt.Volume) bool { return v.Copied() != nil }
	if s.launcher != nil || !slices.ContainsFunc(s.instance.Spec.Volumes, copied) {
		return nil
	}
	storage, err := r.storage(ctx)
	if err != nil {
		return err
	}
	for _, v := range s.instance.Spec.Volumes {
		c := v.Copied()
		if c == nil {
			continue
		}
		m, err := s.medium(v.Name, c, storage)
		if err != nil {
			return err
		}
		s.pods.Copies = append(s.pods.Copies, m)
	}
	return nil
}

// medium is where a copy is to be.
func (s *run) medium(volume string, c *kubevirt.DiskCopy, storage claim.Cluster) (render.Copy, error) {
	m := render.Copy{Volume: volume}
	at := slices.IndexFunc(s.disks, func(d disk) bool { return d.name == volume })
	switch {
	case c.Capacity != nil:
		m.Room, m.Claimed = c.Capacity.Value(), true
	case c.Size != nil:
		m.Room = c.Size.Value()
	case at >= 0:
		m.Room = s.disks[at].room()
	}
	class := claim.DefaultCopyClass(storage.Classes)
	if c.UsageType != "" {
		if class = claim.ForUsage(storage.Classes, c.UsageType); class == nil {
			s.unoffered(volume, at, unofferedText(volume, c.UsageType, storage.Classes))
			return m, nil
		}
	}
	if class == nil || m.Room == 0 { // how large a claim would have to be is known when the machine starts
		return m, nil
	}
	var err error
	m.Class = class.Name
	m.Size, err = claim.FilesystemOf(class).Inflate(launch.CopyFile(m.Room), claim.OverheadOf(storage.Overhead, class.Name))
	if err != nil {
		return m, fmt.Errorf("find the size of a claim for the copy of volume %s: %w", volume, err)
	}
	return m, nil
}

// unoffered notes that the machine cannot start for want of a medium. A container disk is no disk of its own until then.
func (s *run) unoffered(volume string, at int, why string) {
	if at < 0 {
		at = len(s.disks)
		s.disks = append(s.disks, disk{name: volume})
	}
	d := &s.disks[at]
	if d.why != "" {
		why = d.why + "; " + why
	}
	d.is, d.why, d.unoffered = max(d.is, machine.Missing), why, true
}

// unofferedText says what there is instead of a usage type.
func unofferedText(volume, usage string, classes []storagev1.StorageClass) string {
	text := fmt.Sprintf("the copy of volume %s is to be kept on usage type %s, which no StorageClass offers", volume, usage)
	if there := claim.UsageTypes(classes); len(there) > 0 {
		return text + "; there are: " + strings.Join(there, ", ")
	}
	return text + fmt.Sprintf("; none is offered at all: annotate a StorageClass with %s%s, or leave usageType out", claim.UsageTypePrefix, usage)
}

// room is what the disk in a claim has at most; 0 if that is not known.
func (d disk) room() int64 {
	if d.claim == nil {
		return 0
	}
	if has, ok := d.claim.Status.Capacity[corev1.ResourceStorage]; ok {
		return has.Value()
	}
	asked := d.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return asked.Value()
}

// awaiting brings back the instances that wait for a usage type when a class changes.
func (r *Reconciler) awaiting() handler.EventHandler {
	return r.instancesThat(func(i *kubevirt.VirtualMachineInstance) bool {
		return i.Status.Reason == string(state.UsageTypeMissing)
	})
}

// instancesThat brings back those whose status is such.
func (r *Reconciler) instancesThat(wait func(*kubevirt.VirtualMachineInstance) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		var list kubevirt.VirtualMachineInstanceList
		if err := r.reader.List(ctx, &list); err != nil {
			log.FromContext(ctx).Error(err, "list the instances that wait")
			return nil
		}
		var due []reconcile.Request
		for i := range list.Items {
			if o := &list.Items[i]; wait(o) {
				due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
			}
		}
		return due
	})
}
