package volume

// The names below are for the decision table of the tests and for logs.

func (f Flow) String() string {
	return name(f, "Import", "Upload", "Clone", "Provision", "Restore", "Enlarge", "EnlargeRestored", "External")
}

func (o Origin) String() string {
	return name(o, "Usable", "Missing", "Unfilled", "Busy", "Unfit", "Forbidden", "Preparing", "Restoring", "Unready", "Misplaced", "Beside", "Replaced", "Larger")
}

func (c Claim) String() string {
	return name(c, "Absent", "Incomplete", "Foreign", "Unusable", "Adoptable", "Unbound", "Held", "Waiting", "Bound",
		"Lost", "Leaving", "Following")
}

func (d Data) String() string {
	return name(d, "None", "Present", "Kept", "Found", "Condemned", "Unknown")
}

func (a Access) String() string {
	return name(a, "Clear", "Unrecorded", "Taken")
}

func (w Worker) String() string {
	return name(w, "NoWorker", "Going", "Pending", "Unplaceable", "Stranded", "Unfetchable", "Running", "CutOff",
		"Done", "Retained", "Failed", "Fatal")
}

func name[E ~int](e E, names ...string) string {
	if int(e) < 0 || int(e) >= len(names) {
		return "?"
	}
	return names[e]
}
