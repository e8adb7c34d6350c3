package vm

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// sharedConditions returns the conditions of the machine's instance; none without one.
func sharedConditions(w *compose.Machine) []kubevirt.Condition {
	if w.Instance == nil || w.Instances() == machine.Stranger {
		return nil
	}
	return report.Shared(w.Instance)
}
