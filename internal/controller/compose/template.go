package compose

import (
	"context"

	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/livechange"
)

// followed: the instance is as the machine's spec says.
func (w *Machine) followed() bool {
	return w.Instances() != machine.Living || w.Instance.Object.Annotations[kubevirt.AnnGeneration] == observed.Generation(w.Object)
}

// observeChange compares the instance with the one that the machine would be started with. If that cannot be told, because the template names
// something that is not there, the machine says so and its instance is left as it is.
func (r *Reader) observeChange(ctx context.Context, w *Machine) error {
	i := w.Instance.Object
	switch {
	case w.Instance.Launcher == nil || w.Means == machine.Restoring:
		return nil // it is about to be started, or to be stopped
	case w.Means != machine.Provided:
		w.Change = &livechange.Plan{Volumes: i.Spec.Volumes, Disks: i.Spec.Domain.Devices.Disks, FromTemplate: observed.TemplateVolumes(i), Restart: []string{w.Why}}
		return nil
	}
	unready, err := r.Read.UnreadyVolumes(ctx, i, w.Next.Spec.Volumes)
	if err != nil {
		return err
	}
	plan := livechange.Decide(livechange.Facts{
		Want: w.Next.Spec, Has: i.Spec, FromTemplate: observed.TemplateVolumes(i), Unready: unready, Leaving: w.Instance.Leaving(),
		Migrates: ptr.Deref(w.Object.Spec.UpdateVolumesStrategy, "") == kubevirt.UpdateByMigration,
	})
	w.Change = &plan
	return nil
}
