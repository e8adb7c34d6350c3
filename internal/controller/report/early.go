package report

import (
	"slices"

	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/names"
)

// mayBeEarly: one of its disks may have been taken before it was full.
func mayBeEarly(s *observed.Instance) bool {
	return slices.ContainsFunc(s.Disks, func(d diskstate.Disk) bool {
		return d.Early || d.Claim != nil && d.Claim.Annotations[names.BootEarly] == "true"
	})
}
