package report

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/disk"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/state"
)

// movable returns the condition LiveMigratable of the instance: none before its guest runs.
func movable(s *observed.Instance) []kubevirt.Condition {
	if observed.Situation(s.Launcher) != machine.Up {
		return nil
	}
	all := kubevirt.Condition{Type: "LiveMigratable", Status: corev1.ConditionTrue}
	storage := kubevirt.Condition{Type: "StorageLiveMigratable", Status: corev1.ConditionTrue}
	if reason, why := s.Fixed(); reason != "" {
		all.Status, all.Reason, all.Message = corev1.ConditionFalse, string(reason), why
		if reason == state.FixedDisks {
			storage.Status, storage.Reason, storage.Message = all.Status, all.Reason, why
		}
	}
	return []kubevirt.Condition{all, storage}
}

// Method says how its disks are moved.
func Method(s *observed.Instance) string {
	sent := func(v kubevirt.Volume) bool { return disk.Of(v.VolumeSource).Moves == disk.Sent || v.Copied() != nil }
	if slices.ContainsFunc(s.Object.Spec.Volumes, sent) || slices.ContainsFunc(s.GuestDisks(), diskstate.Disk.Stays) || len(s.Updates.Due()) > 0 {
		return "BlockMigration"
	}
	return "LiveMigration"
}

// Active are the pods that have the guest, or are to have it.
func Active(s *observed.Instance) map[types.UID]string {
	out := map[types.UID]string{s.Launcher.UID: s.Launcher.Spec.NodeName}
	for _, p := range s.Others {
		if launcherpod.Ended(p) == "" {
			out[p.UID] = p.Spec.NodeName
		}
	}
	return out
}
