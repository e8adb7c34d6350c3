package cron

// The names below are for the decision table of the tests and for logs.

func (p Poll) String() string { return name(p, "NoPoll", "Asking", "Answered", "Unanswered", "Ending") }

func (i Import) String() string {
	return name(i, "Unknown", "Missing", "Scheduled", "Importing", "Broken", "Imported", "Storing", "Ready")
}

func name[E ~int](e E, names ...string) string {
	if int(e) < 0 || int(e) >= len(names) {
		return "?"
	}
	return names[e]
}
