package cron

import "github.com/berth-vm/berth/internal/decide"

// The names below are for the decision table of the tests and for logs.

func (p Poll) String() string {
	return decide.Name(p, "NoPoll", "Asking", "Answered", "Unanswered", "Ending")
}

func (i Import) String() string {
	return decide.Name(i, "Unknown", "Missing", "Scheduled", "Importing", "Broken", "Imported", "Storing", "Ready")
}
