package plan

import (
	"fmt"
	"path"
)

// StaticClass is the storage class of the hand-made volumes.
const StaticClass = "local-static"

// diskSize is the size of every static disk. The files behind them are sparse.
const diskSize = 4 << 30

// disksPerMode is how many static disks of each volume mode a node has.
const disksPerMode = 4

// A Disk is a file below the node's directory that looks like a disk to the node: through a loop device, either formatted and
// mounted, or as it is.
type Disk struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	// FSType is the file system on it; empty for a disk that is used as a device.
	FSType string `json:"fsType,omitempty"`
	// Mount is the path at which the node has the disk, if it is not among its static disks.
	Mount string `json:"mount,omitempty"`
	// Marker is an empty file that its user wants to find on its file system, so as not to take an empty mount point for it.
	Marker string `json:"marker,omitempty"`
}

// Block tells a disk that is used as a device.
func (d Disk) Block() bool { return d.FSType == "" }

// File returns the disk's backing file, relative to the node's directory.
func (d Disk) File() string { return path.Join("disks", d.Name+".img") }

// Path returns where the node finds the disk: a mount point, or a link to the device.
func (d Disk) Path() string {
	if d.Mount != "" {
		return d.Mount
	}
	return path.Join("/mnt/disks", d.Name)
}

// poolSize is the capacity of a node's pool. Its file is sparse, so three of them take only the space that is written.
const poolSize = 32 << 30

// Pool returns the disk whose file system a CSI driver may carve volumes from. XFS shares blocks between files, so snapshots and
// clones of any size take a moment.
func Pool() Disk {
	return Disk{Name: "pool", Size: poolSize, FSType: "xfs", Mount: "/var/lib/localdisk", Marker: "pool.json"}
}

// StaticDisks returns the disks every node offers as volumes of class local-static.
func StaticDisks() []Disk {
	var out []Disk
	for i := 1; i <= disksPerMode; i++ {
		out = append(out, Disk{Name: fmt.Sprintf("fs%d", i), Size: diskSize, FSType: "ext4"}, Disk{Name: fmt.Sprintf("block%d", i), Size: diskSize})
	}
	return out
}
