package launcherapi

import kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"

// CopiesDir has the files of copies, in one directory for each volume. Each directory is a volume of the pod.
const CopiesDir = "/run/berth/copies"

// CopyFile returns the largest size of the file of a copy that the guest may write room bytes to: the data, and the tables of qcow2, which take
// less than a thousandth of it.
func CopyFile(room int64) int64 { return room + room>>10 + 4<<20 }

// CopyRoom is how much a guest may write to a copy whose size was unknown when its machine started, if the machine sets no limit.
// The disk is an image's, or a server's, and may claim to be of any size.
const CopyRoom = 64 << 30

// ClaimRoom is the same for a copy on a claim of a usage type: the claim is made before the size is known, and can grow later.
const ClaimRoom = 10 << 30

// ImageBytes limits the size of the layers of a container image together, as filesystems, or of the disk in it.
const ImageBytes = 64 << 30

// ImageScheme makes a URL of the name of a container image.
const ImageScheme = "docker://"

// ImageFiles limits the size of the directory with these files. Each layer's file also has its tables.
func ImageFiles() int64 { return CopyFile(ImageBytes) + 128<<20 }

// Copy is the progress of the copy of a volume.
type Copy struct {
	Mode   kubevirt.CopyMode `json:"mode"`
	Stored int64             `json:"stored,omitempty"` // bytes that it takes on its medium
	Size   int64             `json:"size,omitempty"`   // of the guest's disk
	// Done of Total parts of the master's data are in the copy.
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
	// LetGo says that all of the master is in the copy and that QEMU has closed the master.
	LetGo bool `json:"letGo,omitempty"`
	// Alone is why the layers of a container image were made for this machine alone; empty if they are the node's, or if there are none.
	Alone string `json:"alone,omitempty"`
}

// Complete records that all of the master is in the copy and that QEMU has closed the master.
func (c *Copy) Complete() { c.Done, c.LetGo = c.Total, true }
