package clone

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/render"
)

// Sweep removes what is left in other namespaces of a volume or claim that is gone. Usually nothing is left, because of a
// finalizer on its owner. But users can remove the finalizer, and a server that stayed would keep another user's claim from being
// deleted.
//
// A server names the object that it works for, and any user can write that on a pod: a missing object of that name does not prove
// that the clone with this UID is gone. So only objects in the pod's own namespace are removed, so a forged server can only harm
// its own author. The client's keys are in the namespace of the volume, which owns them: they go with it.
func (c *Cloner) Sweep(ctx context.Context, gone types.NamespacedName) error {
	var servers corev1.PodList
	if err := c.reader.List(ctx, &servers, client.MatchingFields{cacheindex.PodServes: gone.String()}); err != nil {
		return fmt.Errorf("list servers: %w", err)
	}
	var alive map[types.UID]bool
	for i := range servers.Items {
		p := &servers.Items[i]
		uid := types.UID(p.Labels[render.LabelVolumeUID])
		if uid == "" {
			continue
		}
		if alive == nil {
			var err error
			if alive, err = c.named(ctx, gone); err != nil {
				return err
			}
		}
		s := c.seenIn(Order{Namespace: gone.Namespace, UID: uid, For: &cdiv1.DataVolume{}}, p.Namespace)
		if alive[uid] || p.Name != s.order.serverName() || !s.acrossSpaces() {
			continue
		}
		if err := c.observeAids(ctx, s); err != nil {
			return err
		}
		if err := c.removeAtSource(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// named returns the UIDs of the volume and of the claim that have the name now, as the API server knows them.
func (c *observer) named(ctx context.Context, name types.NamespacedName) (map[types.UID]bool, error) {
	v, err := cluster.Get[cdiv1.DataVolume](ctx, c.live, name.Namespace, name.Name)
	if err != nil {
		return nil, err
	}
	claim, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, c.live, name.Namespace, name.Name)
	if err != nil {
		return nil, err
	}
	alive := map[types.UID]bool{}
	if v != nil {
		alive[v.UID] = true
	}
	if claim != nil {
		alive[claim.UID] = true
	}
	return alive, nil
}
