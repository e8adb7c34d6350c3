package populate

// The names below are for the decision table of the tests and for logs.

func (t Target) String() string { return name(t, "Open", "Kept", "Bound", "Lost", "Leaving") }
func (s Source) String() string { return name(s, "Found", "Absent", "Forbidden", "Broken") }
func (p Place) String() string  { return name(p, "Chosen", "Unchosen", "Classless") }
func (c Contents) String() string {
	return name(c, "Unknown", "Empty", "Begun")
}
func (p Prime) String() string {
	return name(p, "NoPrime", "Filling", "Full", "Taken", "Misplaced", "Refused", "Given", "Going")
}

func name[E ~int](e E, names ...string) string {
	if int(e) < 0 || int(e) >= len(names) {
		return "?"
	}
	return names[e]
}
