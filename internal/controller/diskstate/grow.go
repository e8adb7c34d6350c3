package diskstate

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/pkg/claim"
)

// Growth computes the minimum size of the disk in a claim. A claim can grow while its machine runs and while it is stopped. The
// launcher reads the size of a block device itself.
func (r *Reader) Growth(ctx context.Context, d *Disk) error {
	c := d.Claim
	if c == nil || c.Status.Phase != corev1.ClaimBound || d.Copied != nil || d.Mode == accessv1.ReadShared {
		return nil
	}
	size, has := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	switch {
	case has.IsZero():
		return nil
	case d.Direct != nil:
		d.Grows = has.Value() // a network disk has the size that its storage says
		return nil
	case d.Block():
		return nil
	case has.Cmp(size) < 0:
		size = has // it has been asked to grow, and has not yet
	}
	overhead, class, err := r.filesystemOf(ctx, c)
	if err != nil {
		return err
	}
	if d.Grows, err = class.Disk(size.Value(), overhead); err != nil {
		return fmt.Errorf("find the size of the disk in claim %s: %w", c.Name, err)
	}
	if keptSize(c, d.Grows) {
		d.Grows = 0
	}
	return nil
}

// keptSize: the disk is a clone that has the size of its source, and the claim has not grown since: what it could have more is only what
// filesystems differ by.
func keptSize(c *corev1.PersistentVolumeClaim, could int64) bool {
	size, err := strconv.ParseInt(c.Annotations[names.DiskSize], 10, 64)
	return err == nil && c.Annotations[names.CloneSize] == names.CloneSizeKept && could < size+size/64
}

// filesystemOf returns how many bytes of a claim its filesystem takes.
func (r *Reader) filesystemOf(ctx context.Context, c *corev1.PersistentVolumeClaim) (overhead cdiv1.Percent, kind claim.Filesystem, err error) {
	name := ""
	if c.Spec.StorageClassName != nil {
		name = *c.Spec.StorageClassName
	}
	if overhead, err = r.overhead(ctx, name); err != nil || name == "" {
		return overhead, claim.FilesystemOf(nil), err
	}
	class, err := cluster.Get[storagev1.StorageClass](ctx, r.Cached, "", name)
	return overhead, claim.FilesystemOf(class), err
}
