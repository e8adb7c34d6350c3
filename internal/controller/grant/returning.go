package grant

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
)

var errOutdated = errors.New("the disk has old data")

// current asks the server, not the cache, whether the data of a disk that is about to be taken is still on its volume.
func (r *Grants) current(ctx context.Context, d diskstate.Disk) error {
	if d.PV == nil {
		return nil
	}
	pv, err := cluster.Get[corev1.PersistentVolume](ctx, r.Live, "", d.PV.Name)
	if err != nil || pv == nil || pv.Annotations[replacedclaim.By] == "" {
		return err
	}
	return fmt.Errorf("%w: %s", errOutdated, replacedclaim.Outdated(d.Claim.Name, pv))
}
