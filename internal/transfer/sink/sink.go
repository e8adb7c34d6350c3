// Package sink is where a transfer's bytes end up: a file, a block device or a directory. It makes what is written
// durable and what is not written zero; it does not know where bytes come from or what format they had.
package sink

// Disk is a target for one guest disk. WriteAt and Zero are safe for concurrent use on disjoint ranges.
type Disk interface {
	// WriteAt writes p at off. Implementations find the zero pages of p and leave them unwritten where the target
	// already reads as zeroes there.
	WriteAt(p []byte, off int64) (int, error)
	ReadAt(p []byte, off int64) (int, error)
	// Limit is how large a disk this target can hold, in bytes.
	Limit() (int64, error)
	// Begin prepares for a disk of this size. Afterwards everything that is not written reads as zeroes; with resume
	// set, what an earlier run wrote is kept.
	Begin(size int64, resume bool) error
	// Sync makes everything written so far durable.
	Sync() error
	// Finish gives the disk its final size and makes it durable, under its final name. Until Finish returns, nothing at
	// the target can be taken for a finished disk.
	Finish() error
	Close() error
}
