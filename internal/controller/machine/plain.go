package machine

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
func (r *Reconciler) observePlain(ctx context.Context, d *disk) error {
	if d.claim.Status.Phase != corev1.ClaimBound {
		waits, err := r.waits(ctx, d.claim)
		if err != nil {
			return err
		}
		d.is, d.why = machine.Filling, pending(d.claim)
		switch {
		case waits && r.data && clonesource.FilledInPlace(d.claim):
			d.is = machine.Held // bound by the launcher it would be booted from before its upload
		case waits:
			d.is = machine.Unbound
		}
	}
	if d.claim.Spec.DataSourceRef != nil || d.claim.Spec.DataSource != nil || d.block() || r.data && clonesource.FilledInPlace(d.claim) {
		return nil
	}
	size, err := r.emptySize(ctx, d.claim)
	d.empty = size
	return err
}

// waits: the claim is bound when a pod that uses it is placed.
func (r *Reconciler) waits(ctx context.Context, c *corev1.PersistentVolumeClaim) (bool, error) {
	if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName == "" {
		return false, nil
	}
	class, err := cluster.Get[storagev1.StorageClass](ctx, r.reader, "", *c.Spec.StorageClassName)
	return claim.Waits(class), err
}

// pending says what an unbound claim waits for.
func pending(c *corev1.PersistentVolumeClaim) string {
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

// emptySize is the disk that fits in a claim with a filesystem.
func (r *Reconciler) emptySize(ctx context.Context, c *corev1.PersistentVolumeClaim) (int64, error) {
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

// overhead is what filesystems of a class are configured to take.
func (r *Reconciler) overhead(ctx context.Context, class string) (cdiv1.Percent, error) {
	if !r.data {
		return claim.OverheadOf(nil, class), nil
	}
	config, err := cluster.Get[cdiv1.CDIConfig](ctx, r.reader, "", "config")
	if err != nil || config == nil {
		return claim.OverheadOf(nil, class), err
	}
	return claim.OverheadOf(config.Status.FilesystemOverhead, class), nil
}
