package update

import "github.com/berth-vm/berth/internal/decide"

func (c Change) String() string { return decide.Name(c, "same", "refused", "changed") }

func (g Guest) String() string { return decide.Name(g, "Ended", "Unready", "Fixed", "Movable") }

func (m Moves) String() string { return decide.Name(m, "still", "moving", "resting") }
