package observed

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// Earlier reports whether migration a was made before b.
func Earlier(a, b *kubevirt.VirtualMachineInstanceMigration) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// MigrationsOf returns the migrations of an instance.
func (r *Reader) MigrationsOf(ctx context.Context, namespace, instance string) ([]kubevirt.VirtualMachineInstanceMigration, error) {
	var list kubevirt.VirtualMachineInstanceMigrationList
	if err := r.Cached.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(m kubevirt.VirtualMachineInstanceMigration) bool { return m.Spec.VMIName != instance }), nil
}

// VolumeNames returns the names of volumes.
func VolumeNames(volumes []kubevirt.Volume) []string {
	var out []string
	for _, v := range volumes {
		out = append(out, v.Name)
	}
	return out
}
