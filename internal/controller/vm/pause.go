package vm

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/state"
)

// pausedCondition of a machine is that of its instance, while the machine says what its instance says.
func pausedCondition(w *compose.Machine, row state.MachineRow) []kubevirt.Condition {
	if row.Reason != state.PausedByUser {
		return nil
	}
	return report.PausedCondition(w.Instance)
}
