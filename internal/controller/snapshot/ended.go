package snapshot

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
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
	return of != nil && vm != nil && of.UID != "" && vm.Annotations[annRestore] == string(of.UID)
}

// LeftOut lists the volumes of the machine in a snapshot that are in claims and that the snapshot has no copy of. A machine that is made from it
// under another name would have the claims of the first.
func LeftOut(c *snapshotv1.VirtualMachineSnapshotContent) []string {
	var out []string
	was := c.Spec.Source.VirtualMachine
	for _, v := range was.Spec.Template.Spec.AllVolumes() {
		if homeOf(was.ObjectMeta.Name, &was.Spec, v).claim == "" || v.Copied() != nil {
			continue
		}
		has := false
		for _, b := range c.Spec.VolumeBackups {
			has = has || b.VolumeName == v.Name
		}
		if !has {
			out = append(out, v.Name)
		}
	}
	return out
}
