package machine

import (
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// setupEnd adds the controller that releases the disks of ended launchers.
func (r *Controllers) setupEnd(mgr ctrl.Manager) error {
	keeper := &podend.Keeper{Reader: r.Read.Cached, Live: r.Read.Live, Cluster: r.Releases.Cluster, Finalizer: render.LauncherEnd, Before: r.Releases.Ended}
	return keeper.Setup(mgr, "launcher-end")
}

// waiters brings back the instances that wait for a disk when a record changes.
func (r *Controllers) waiters() handler.EventHandler {
	return r.instancesThat(func(i *kubevirt.VirtualMachineInstance) bool { return i.Status.Reason == string(state.DiskInUse) })
}
