package compose

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/render"
)

// observePartial looks for claims of a machine that does not run that have only a part of a disk.
func (r *Reader) observePartial(ctx context.Context, w *Machine) error {
	if w.Instance != nil && w.Instance.Launcher != nil || w.Object.Spec.Template == nil {
		return nil
	}
	for _, v := range observed.NewInstance(w.Object).Spec.Volumes {
		name, _ := render.ClaimOf(v)
		if name == "" {
			continue
		}
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Read.Cached, w.Object.Namespace, name)
		if err != nil {
			return err
		}
		if text := diskstate.Partial(c); text != "" {
			w.Partial = text
		}
	}
	return nil
}
