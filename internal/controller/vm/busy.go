package vm

import (
	"time"

	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// lookAgain returns when to check again a machine that lacks an object that is not watched: a class, a clone's source, an instance type.
func lookAgain(w *compose.Machine) time.Duration {
	if w.Change != nil && len(w.Change.Waiting) > 0 {
		return report.ReturnsAgain
	}
	if w.Means == machine.Provided || w.Means == machine.Restoring {
		return 0
	}
	return 5 * time.Second
}
