package vm

import (
	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/controller/volumeupdate"
)

// updateConditions returns the conditions that upstream sets on a running machine that was changed.
func updateConditions(w *compose.Machine, u volumeupdate.Plan) []kubevirt.Condition {
	out := restartRequired(w, u)
	if w.Partial != "" {
		out = append(out, kubevirt.Condition{Type: "ManualRecoveryRequired", Status: corev1.ConditionTrue, Reason: "VolumesIncomplete", Message: w.Partial})
	}
	return out
}

func updateState(w *compose.Machine) *kubevirt.VolumeUpdateState {
	if w.Instance == nil || len(report.Migrated(w.Instance)) == 0 {
		return nil
	}
	return &kubevirt.VolumeUpdateState{VolumeMigrationState: &kubevirt.VolumeMigrationState{MigratedVolumes: report.Migrated(w.Instance)}}
}
