package observed

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/pkg/claim"
)

// Storage returns the facts about the cluster's storage that the completion of claims needs.
func (r *Reader) Storage(ctx context.Context) (claim.Cluster, error) {
	var classes storagev1.StorageClassList
	if err := r.Cached.List(ctx, &classes); err != nil {
		return claim.Cluster{}, fmt.Errorf("list storage classes: %w", err)
	}
	out := claim.Cluster{Classes: classes.Items}
	if !r.Data {
		return out, nil
	}
	var profiles cdiv1.StorageProfileList
	if err := r.Cached.List(ctx, &profiles); err != nil {
		return claim.Cluster{}, fmt.Errorf("list storage profiles: %w", err)
	}
	out.Profiles = profiles.Items
	config, err := cluster.Get[cdiv1.CDIConfig](ctx, r.Cached, "", "config")
	if err != nil {
		return claim.Cluster{}, err
	}
	if config != nil {
		out.Overhead = config.Status.FilesystemOverhead
	}
	return out, nil
}
