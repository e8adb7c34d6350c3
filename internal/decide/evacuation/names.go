package evacuation

import "github.com/berth-vm/berth/internal/decide"

func (s Strategy) String() string { return decide.Name(s, "None", "Move", "MoveIfAble", "External") }

func (g Guest) String() string { return decide.Name(g, "Ended", "Unready", "Fixed", "Movable") }

func (m Moves) String() string { return decide.Name(m, "still", "moving", "resting") }
