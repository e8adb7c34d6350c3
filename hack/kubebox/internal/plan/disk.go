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
	Name  string `json:"name"`
	Block bool   `json:"block"`
	Size  int64  `json:"size"`
}

// File is the disk's backing file, relative to the node's directory.
func (d Disk) File() string { return path.Join("disks", d.Name+".img") }

// Path is where the node finds the disk: a mount point, or a link to the device.
func (d Disk) Path() string { return path.Join("/mnt/disks", d.Name) }

// StaticDisks are the disks every node offers as volumes of class local-static.
func StaticDisks() []Disk {
	var out []Disk
	for i := 1; i <= disksPerMode; i++ {
		out = append(out, Disk{Name: fmt.Sprintf("fs%d", i), Size: diskSize}, Disk{Name: fmt.Sprintf("block%d", i), Block: true, Size: diskSize})
	}
	return out
}
