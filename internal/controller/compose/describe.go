package compose

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/render"
)

// observeSnapshots finds which volumes a snapshot of the machine has: those whose class has a VolumeSnapshotClass.
func (r *Reader) observeSnapshots(ctx context.Context, w *Machine) error {
	for _, v := range w.Object.Spec.Template.Spec.Volumes {
		s := kubevirt.VolumeSnapshotStatus{Name: v.Name, Reason: fmt.Sprintf("Snapshot is not supported for this volumeSource type [%s]", v.Name)}
		if name, _ := render.ClaimOf(v); name != "" && v.Copied() == nil {
			var err error
			if s.Enabled, s.Reason, err = r.snapshottable(ctx, w.Object.Namespace, name, v.Name); err != nil {
				return err
			}
		}
		w.Snapshots = append(w.Snapshots, s)
	}
	return nil
}

// snapshottable reports whether a claim's class can take snapshots, and why not.
func (r *Reader) snapshottable(ctx context.Context, namespace, name, volume string) (can bool, why string, err error) {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Read.Cached, namespace, name)
	if err != nil {
		return false, "", err
	}
	if c == nil {
		return false, "PVC not found", nil
	}
	if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName == "" {
		return false, fmt.Sprintf("Volume snapshots are not configured for this StorageClass [] [%s]", volume), nil
	}
	profile, err := cluster.Get[cdiv1.StorageProfile](ctx, r.Read.Cached, "", *c.Spec.StorageClassName)
	if err != nil {
		return false, "", err
	}
	if profile == nil || profile.Status.SnapshotClass == nil || *profile.Status.SnapshotClass == "" {
		return false, fmt.Sprintf("No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass [%s] [%s]", *c.Spec.StorageClassName, volume), nil
	}
	return true, "", nil
}
