package volume

import "github.com/berth-vm/berth/internal/decide"

// The names below are for the decision table of the tests and for logs.

func (f Flow) String() string {
	return decide.Name(f, "Import", "Upload", "Clone", "Provision", "Restore", "Enlarge", "EnlargeRestored", "External", "Staged")
}

func (o Origin) String() string {
	return decide.Name(o, "Usable", "Missing", "Unfilled", "Busy", "Unfit", "Forbidden", "Preparing", "Restoring", "Unready", "Misplaced", "Beside", "Replaced", "Larger")
}

func (c Claim) String() string {
	return decide.Name(c, "Absent", "Incomplete", "Foreign", "Unusable", "Adoptable", "Unbound", "Held", "Waiting", "Bound",
		"Lost", "Leaving", "Following")
}

func (d Data) String() string {
	return decide.Name(d, "None", "Present", "Kept", "Found", "Condemned", "Unknown", "Paused", "Applied")
}

func (a Access) String() string {
	return decide.Name(a, "Clear", "Unrecorded", "Taken")
}

func (w Worker) String() string {
	return decide.Name(w, "NoWorker", "Going", "Pending", "Unplaceable", "Stranded", "Unfetchable", "Running", "CutOff",
		"Done", "Retained", "Failed", "Fatal")
}
