// Package access decides which pods may have a disk at the same time. It is pure: a mode that is wanted, and the modes of those
// who have the disk, give an answer; testdata has every pair.
//
// It does not know which disk it is (internal/identity) nor where the record of its holders is kept.
package access

import accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"

// Compatible reports whether a holder in mode has may share the disk with another in mode wants. Guests that agree among
// themselves may write together; a guest that reads must not see a disk change under it; all other holders are exclusive. A
// machine that names one disk twice counts as two holders, because its guest would write like two guests.
func Compatible(has, wants accessv1.Mode) bool {
	return has == wants && (wants == accessv1.WriteShared || wants == accessv1.ReadShared)
}
