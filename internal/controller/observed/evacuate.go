package observed

import (
	"github.com/berth-vm/berth/internal/decide/evacuation"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// Leaver is the guest as the decision sees it.
func (s *Instance) Leaver() evacuation.Guest {
	at := Situation(s.Launcher)
	reason, _ := s.Fixed()
	switch {
	case s.Object.DeletionTimestamp != nil, s.Past != nil, at == machine.Going, at == machine.Done, at == machine.Broken:
		return evacuation.Ended
	case at != machine.Up:
		return evacuation.Unready
	case reason != "":
		return evacuation.Fixed
	}
	return evacuation.Movable
}
