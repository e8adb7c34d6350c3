package observed

import (
	"github.com/berth-vm/berth/internal/decide/machine"
)

// access returns the worst state of access to the disks that the machine is started with.
func (s *Instance) access() machine.Access {
	have, taken, login := 0, 0, machine.Free
	for _, d := range s.Disks {
		switch d.Access {
		case machine.Have:
			have++
		case machine.Taken, machine.Partly:
			taken++
		case machine.LogsIn:
			login = machine.LogsIn
		case machine.LoggedIn:
			if login == machine.Free {
				login = machine.LoggedIn
			}
		case machine.Free:
		}
	}
	switch {
	case taken > 0 && have > 0:
		return machine.Partly
	case taken > 0:
		return machine.Taken
	case login != machine.Free:
		return login
	case have == len(s.Disks):
		return machine.Have
	}
	return machine.Free
}
