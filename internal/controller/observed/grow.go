package observed

import (
	"github.com/berth-vm/berth/internal/launcherpod"
)

// grown returns the sizes of disks that the launcher is told while its guest runs: those of claims that have grown since it was
// made, and those of added disks.
func (s *Instance) grown() map[string]int64 {
	out := map[string]int64{}
	began := launcherpod.Machine(s.Launcher).Sizes
	for _, d := range s.Disks {
		if d.Grows > began[d.Name] {
			out[d.Name] = d.Grows
		}
	}
	for _, h := range s.Added {
		if h.Wanted && h.Keep == nil && h.Grows > 0 && (h.grantable() || s.Told(h.Name)) {
			out[h.Name] = h.Grows
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
