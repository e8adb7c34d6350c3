package diskstate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/pkg/claim"
)

// What a populator says on the claim it fills.
const (
	annPopulation = "cdi.kubevirt.io/storage.populator.progress"
	annRunning    = "cdi.kubevirt.io/storage.condition.running.message"
)

// observePlain observes a claim that no DataVolume fills. Until it is bound it waits for a consumer, or for its populator, which
// binds it when it is full. Bound without a source, it may still lack its disk.
func (r *Reader) observePlain(ctx context.Context, d *Disk) error {
	if d.Claim.Status.Phase != corev1.ClaimBound {
		waits, err := r.WaitsForConsumer(ctx, d.Claim)
		if err != nil {
			return err
		}
		d.State, d.Why = machine.Filling, Pending(d.Claim)
		switch {
		case waits && r.Data && clonesource.FilledInPlace(d.Claim):
			d.State = machine.Held // bound by the launcher it would be booted from before its upload
		case waits:
			d.State = machine.Unbound
		}
	}
	if d.Claim.Spec.DataSourceRef != nil || d.Claim.Spec.DataSource != nil || d.Block() || r.Data && clonesource.FilledInPlace(d.Claim) {
		return nil
	}
	size, err := r.EmptySize(ctx, d.Claim)
	d.Empty = size
	return err
}

// WaitsForConsumer reports whether the claim is bound when a pod that uses it is placed.
func (r *Reader) WaitsForConsumer(ctx context.Context, c *corev1.PersistentVolumeClaim) (bool, error) {
	if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName == "" {
		return false, nil
	}
	class, err := cluster.Get[storagev1.StorageClass](ctx, r.Cached, "", *c.Spec.StorageClassName)
	return claim.Waits(class), err
}

// Pending says what an unbound claim waits for.
func Pending(c *corev1.PersistentVolumeClaim) string {
	ref := c.Spec.DataSourceRef
	if ref == nil {
		return fmt.Sprintf("PersistentVolumeClaim %s is not bound yet", c.Name)
	}
	text := fmt.Sprintf("PersistentVolumeClaim %s is being filled from %s %s", c.Name, ref.Kind, ref.Name)
	if p := c.Annotations[annPopulation]; p != "" && p != "N/A" {
		text += fmt.Sprintf(" (%s)", p)
	}
	chosen := c.Annotations[names.SelectedNode] != "" || c.Status.Phase == corev1.ClaimBound
	if m := c.Annotations[annRunning]; m != "" && chosen { // before it is about the first consumer
		text += ": " + m
	}
	return text
}

// EmptySize is the disk that fits in a claim with a filesystem.
func (r *Reader) EmptySize(ctx context.Context, c *corev1.PersistentVolumeClaim) (int64, error) {
	overhead, err := r.overhead(ctx, ptr.Deref(c.Spec.StorageClassName, ""))
	if err != nil {
		return 0, err
	}
	asked := c.Spec.Resources.Requests[corev1.ResourceStorage]
	size, err := claim.Usable(asked.Value(), overhead)
	if err != nil {
		return 0, fmt.Errorf("find the size of a disk in claim %s: %w", c.Name, err)
	}
	return size, nil
}

// overhead returns the filesystem overhead that is configured for a class.
func (r *Reader) overhead(ctx context.Context, class string) (cdiv1.Percent, error) {
	if !r.Data {
		return claim.OverheadOf(nil, class), nil
	}
	config, err := cluster.Get[cdiv1.CDIConfig](ctx, r.Cached, "", "config")
	if err != nil || config == nil {
		return claim.OverheadOf(nil, class), err
	}
	return claim.OverheadOf(config.Status.FilesystemOverhead, class), nil
}
