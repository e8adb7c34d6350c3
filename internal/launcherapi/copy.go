package launcherapi

import kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"

// CopiesDir is where the files of copies are, one directory a volume. Each is on a medium of its own.
const CopiesDir = "/run/berth/copies"

// CopyFile is how large the file of a copy becomes at most that the guest may write room bytes to: the data, and the tables
// of qcow2, which take less than a thousandth of it.
func CopyFile(room int64) int64 { return room + room>>10 + 4<<20 }

// CopyRoom is how much a guest may write to a copy whose size was unknown when its machine started, if the machine sets no limit.
// The disk is an image's, or a server's, and may claim to be of any size.
const CopyRoom = 64 << 30

// ClaimRoom is the same of a copy that is in a claim of a usage type: the claim has to be made before the size is known, and can grow later.
const ClaimRoom = 10 << 30

// ImageBytes is what the layers of a container image may have together as filesystems, or the disk in it.
const ImageBytes = 64 << 30

// ImageScheme makes a URL of the name of a container image.
const ImageScheme = "docker://"

// ImageFiles is what the directory of these files holds at most. A layer's file has a table of its own, of its partitions too.
func ImageFiles() int64 { return CopyFile(ImageBytes) + 128<<20 }

// Copy is how far the copy of a volume is.
type Copy struct {
	Mode   kubevirt.CopyMode `json:"mode"`
	Stored int64             `json:"stored,omitempty"` // bytes that it takes on its medium
	Size   int64             `json:"size,omitempty"`   // of the guest's disk
	// Done of Total parts of the master are in the copy.
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
	// LetGo says that all of the master is in the copy and that QEMU has closed the master.
	LetGo bool `json:"letGo,omitempty"`
	// Alone is why the layers of a container image were made for this machine alone; empty if they are the node's, or if there are none.
	Alone string `json:"alone,omitempty"`
}

// Complete records that all of the master is in the copy and that QEMU has closed the master.
func (c *Copy) Complete() { c.Done, c.LetGo = c.Total, true }
