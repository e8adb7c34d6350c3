package grant

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/render"
)

// Pod is a pod of a machine that is to have disks.
type Pod struct {
	Pod      *corev1.Pod
	Instance *kubevirt.VirtualMachineInstance
	Beside   types.UID // the pod that has the disks as well, while the guest moves from it; empty: none has
}

// Take enters a pod among the holders of disks.
func (r *Grants) Take(ctx context.Context, t Pod, disks []diskstate.Disk) error {
	wanted := make([]diskaccess.Disk, 0, len(disks))
	for _, d := range disks {
		wanted = append(wanted, diskaccess.Disk{ID: d.ID, Mode: d.Mode, Claim: d.ClaimUID(), Early: d.Early, Servers: d.Servers})
	}
	by := diskaccess.Taker{Pod: t.Pod, Finalizer: render.LauncherEnd, Machine: t.Instance.Name, UID: t.Instance.UID, Beside: t.Beside,
		Current: func(ctx context.Context, wanted diskaccess.Disk) error {
			for _, d := range disks {
				if d.ID == wanted.ID {
					if err := r.current(ctx, d); err != nil {
						return err
					}
				}
			}
			return nil
		}}
	return r.Records.Take(ctx, by, wanted)
}
