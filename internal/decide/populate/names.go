package populate

import "github.com/berth-vm/berth/internal/decide"

// The names below are for the decision table of the tests and for logs.

func (t Target) String() string { return decide.Name(t, "Open", "Kept", "Bound", "Lost", "Leaving") }
func (s Source) String() string { return decide.Name(s, "Found", "Absent", "Forbidden", "Broken") }
func (p Place) String() string  { return decide.Name(p, "Chosen", "Unchosen", "Classless") }
func (c Contents) String() string {
	return decide.Name(c, "Unknown", "Empty", "Begun")
}
func (p Prime) String() string {
	return decide.Name(p, "NoPrime", "Filling", "Full", "Taken", "Misplaced", "Refused", "Given", "Going")
}
