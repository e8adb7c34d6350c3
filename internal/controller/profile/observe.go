package profile

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/volumesnapshot"
	"github.com/berth-vm/berth/pkg/claim"
)

var snapshotClassKind = volumesnapshot.GroupVersion.WithKind("VolumeSnapshotClass")

// observe reads what concerns the class of this name. Without the snapshot API there are no snapshot classes to read.
func (r *reconciler) observe(ctx context.Context, name string, snapshots bool) (seen, error) {
	s := seen{now: metav1.NewTime(r.clock.Now().Truncate(1e9))} // as the API server stores it
	key := types.NamespacedName{Name: name}
	class, profile := &storagev1.StorageClass{}, &cdiv1.StorageProfile{}
	switch err := r.client.Get(ctx, key, class); {
	case err == nil:
		s.class = class
	case !apierrors.IsNotFound(err):
		return seen{}, fmt.Errorf("read storage class %s: %w", name, err)
	}
	switch err := r.client.Get(ctx, key, profile); {
	case err == nil:
		s.profile = profile
	case !apierrors.IsNotFound(err):
		return seen{}, fmt.Errorf("read storage profile %s: %w", name, err)
	}
	if s.class != nil && s.class.Provisioner == claim.NoProvisioner {
		var volumes corev1.PersistentVolumeList
		if err := r.client.List(ctx, &volumes); err != nil {
			return seen{}, fmt.Errorf("list persistent volumes: %w", err)
		}
		s.volumes = volumes.Items
	}
	if !snapshots {
		return s, nil
	}
	var classes volumesnapshot.ClassList
	if err := r.client.List(ctx, &classes); err != nil {
		return seen{}, fmt.Errorf("list volume snapshot classes: %w", err)
	}
	s.snapshots = classes.Items
	return s, nil
}
