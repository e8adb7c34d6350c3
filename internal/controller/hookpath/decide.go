package hookpath

// Present is the path that a webhook has.
type Present int

// The paths.
const (
	Wanted   Present = iota // the one that it is to have
	Accepted                // one that every replica answers at, made with another key
	Foreign                 // any other: one that a user applied, none, or one of a key that is gone
)

// Facts is everything that the decision about a webhook depends on.
type Facts struct {
	Path Present
	// Leads: this replica is the leader. It alone decides which key is used: two clocks would not agree on the moment.
	Leads bool
}

// Write reports whether this replica writes the path that the webhook is to have.
func Write(f Facts) bool {
	switch f.Path {
	case Wanted:
		return false
	case Accepted:
		return f.Leads
	case Foreign:
		return true
	}
	return true
}
