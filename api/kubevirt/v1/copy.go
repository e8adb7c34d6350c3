package v1

// Copies: a disk of the machine's own that begins as a master, which is only read. It is gone with the instance.

// CopyMode is where a guest's writes go.
type CopyMode string

// The modes. Unset is CopyNone.
const (
	CopyNone    CopyMode = "none"          // to the master itself
	CopyOnWrite CopyMode = "copy-on-write" // to an overlay that holds only what was written
	CopyOnRead  CopyMode = "copy-on-read"  // to an overlay that holds what was written and what was read, and in the end everything
	CopyClone   CopyMode = "clone"         // to a copy of the whole master, made before the guest starts
)

// DiskCopy keeps what the guest writes away from the volume, which is its master.
type DiskCopy struct {
	// +kubebuilder:validation:Enum=none;copy-on-write;copy-on-read;clone
	Mode CopyMode `json:"mode"`
	// UsageType is the medium that the copy is kept on, one that a StorageClass offers. Unset is the default class for copies, or
	// else a directory of the node.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	UsageType string `json:"usageType,omitempty"`
	// Capacity is how much the guest may write; the size of its disk if unset.
	Capacity *Quantity `json:"capacity,omitempty"`
	// Size of the disk, if it is to be larger than its master.
	Size *Quantity `json:"size,omitempty"`
}

// DriveCopy is a DiskCopy where a VirtualMachine says it at the disk.
type DriveCopy struct {
	// +kubebuilder:validation:Enum=none;copy-on-write;copy-on-read;clone
	Mode CopyMode `json:"mode"`
	// UsageType is the kind of medium that the copy is kept on.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	UsageType string `json:"usage-type,omitempty"`
	// Capacity is how much the guest may write; by default as much as the disk has.
	Capacity *Quantity `json:"capacity,omitempty"`
	// Size of the disk, if it is to be larger than its master.
	Size *Quantity `json:"size,omitempty"`
}

// volume returns the same copy at a volume.
func (c *DriveCopy) volume() *DiskCopy {
	if c == nil {
		return nil
	}
	return &DiskCopy{Mode: c.Mode, UsageType: c.UsageType, Capacity: c.Capacity, Size: c.Size}
}

// Copied returns the copy that the guest has instead of the volume itself; nil if it has none. A container disk, a container
// image and an ephemeral volume always have one: a copy on write, unless they say another.
func (v *Volume) Copied() *DiskCopy {
	switch {
	case v.Copy != nil && v.Copy.Mode != CopyNone && v.Copy.Mode != "":
		return v.Copy
	case v.ContainerDisk != nil, v.ContainerImage != nil, v.Ephemeral != nil:
		return &DiskCopy{Mode: CopyOnWrite}
	}
	return nil
}
