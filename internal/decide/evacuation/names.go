package evacuation

func (s Strategy) String() string { return name(s, "None", "Move", "MoveIfAble", "External") }

func (g Guest) String() string { return name(g, "Ended", "Unready", "Fixed", "Movable") }

func (m Moves) String() string { return name(m, "still", "moving", "resting") }

func name[E ~int](e E, names ...string) string {
	if int(e) < 0 || int(e) >= len(names) {
		return "?"
	}
	return names[e]
}
