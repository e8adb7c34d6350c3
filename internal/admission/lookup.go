package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/rights"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/pkg/claim"
)

// Signer makes the proof of a grant.
type Signer interface {
	Sign(ctx context.Context, g token.Grant) (string, error)
}

// lookup reads what the checks need from the cluster. A nil object means that there is none.
type lookup struct {
	cache    cache.Cache
	objects  cluster.Reading
	reviews  rights.Reviews
	settings config.Reader
	signer   Signer
	self     string // the user that we are
}

func (l *lookup) claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return cluster.Get[corev1.PersistentVolumeClaim](ctx, l.cache, namespace, name)
}

// anyVolume returns the name of some DataVolume, empty if there is none.
func (l *lookup) anyVolume(ctx context.Context) (string, error) {
	var all cdiv1.DataVolumeList
	if err := l.cache.List(ctx, &all); err != nil {
		return "", fmt.Errorf("list DataVolumes: %w", err)
	}
	if len(all.Items) == 0 {
		return "", nil
	}
	return all.Items[0].Namespace + "/" + all.Items[0].Name, nil
}

func (l *lookup) storage(ctx context.Context) (claim.Cluster, error) {
	var classes storagev1.StorageClassList
	if err := l.cache.List(ctx, &classes); err != nil {
		return claim.Cluster{}, fmt.Errorf("list storage classes: %w", err)
	}
	var profiles cdiv1.StorageProfileList
	if err := l.cache.List(ctx, &profiles); err != nil {
		return claim.Cluster{}, fmt.Errorf("list storage profiles: %w", err)
	}
	return claim.Cluster{Classes: classes.Items, Profiles: profiles.Items}, nil
}
