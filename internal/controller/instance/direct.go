package instance

import (
	"slices"

	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/state"
)

// unallowed: a disk waits for an administrator, who does not tell us.
func unallowed(s *observed.Instance) bool {
	return slices.ContainsFunc(s.Disks, func(d diskstate.Disk) bool {
		return d.Reason == state.DirectForbidden || d.Reason == state.DirectImpossible
	})
}
