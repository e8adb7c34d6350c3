package update

func (c Change) String() string { return name(c, "same", "refused", "changed") }

func (g Guest) String() string { return name(g, "Ended", "Unready", "Fixed", "Movable") }

func (m Moves) String() string { return name(m, "still", "moving", "resting") }

func name[E ~int](e E, names ...string) string {
	if int(e) < 0 || int(e) >= len(names) {
		return "?"
	}
	return names[e]
}
