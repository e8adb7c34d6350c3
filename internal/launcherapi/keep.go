package launcherapi

// KeepOrder has the launcher write a copy, as it is when the writing ends, into a claim that a holder hands over.
type KeepOrder struct {
	Volume string `json:"volume"` // the volume that the guest has a copy of
	Claim  string `json:"claim"`  // UID of the claim: what was said of an earlier one of its name says nothing of this one
}

// Keep is how far the launcher is with a claim that a copy is kept in.
type Keep struct {
	// Done of Total bytes are written.
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
	// Written: all of it is there, flushed to the medium, and QEMU writes to it no longer.
	Written bool `json:"written,omitempty"`
	// Quiet: the guest's agent held its filesystems still at the end.
	Quiet bool `json:"quiet,omitempty"`
	// Failed is why it is not done, in words. It is not tried again.
	Failed string `json:"failed,omitempty"`
}

// Over says that nothing more is written.
func (k Keep) Over() bool { return k.Written || k.Failed != "" }
