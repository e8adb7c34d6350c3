package launcherapi

// KeepOrder orders the launcher to write a copy into a claim that a holder hands over. The claim gets the copy as it is when the writing ends.
type KeepOrder struct {
	Volume string `json:"volume"` // the volume whose copy the guest has
	Claim  string `json:"claim"`  // UID of the claim: reports about an earlier claim of the same name do not count for this one
}

// Keep is the progress of a claim that gets a copy.
type Keep struct {
	// Done of Total bytes are written.
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
	// Written says that the claim has the whole copy, flushed to the medium, and that QEMU no longer writes to it.
	Written bool `json:"written,omitempty"`
	// Quiet says that the guest's filesystems were frozen at the end.
	Quiet bool `json:"quiet,omitempty"`
	// Failed is the error if the copy could not be written. It is not tried again.
	Failed string `json:"failed,omitempty"`
}

// Over reports whether writing has ended.
func (k Keep) Over() bool { return k.Written || k.Failed != "" }
