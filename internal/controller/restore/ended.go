package restore

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/decide/snapshot"
	"github.com/berth-vm/berth/internal/state"
)

// Ended returns how a restore ended.
func Ended(of *snapshotv1.VirtualMachineRestore) state.End {
	switch over(of) {
	case snapshot.Complete:
		return state.Well
	case snapshot.Failed:
		return state.Badly
	case snapshot.NotOver:
	}
	return state.GoingOn
}

// Made reports whether the restore made this machine: its name is not a proof.
func Made(of *snapshotv1.VirtualMachineRestore, vm *kubevirt.VirtualMachine) bool {
	return of != nil && vm != nil && of.UID != "" && vm.Annotations[snapshotcontent.AnnRestore] == string(of.UID)
}
