// Package guest runs one virtual machine: it waits until the disks are filled, turns the machine into a libvirt domain (a
// pure function), starts it, gives it disks while it runs, and ends when the guest ends. It runs in the launcher pod,
// without privilege.
//
// It knows libvirt, QEMU and the files of its own pod. It does not know the Kubernetes API: what it is to run comes as
// files the kubelet mounts, and what became of it leaves as readiness, exit and last words.
package guest

import (
	"path"

	"github.com/berth-vm/berth/internal/launch"
)

// Backing is what a volume is made of inside the pod.
type Backing struct {
	Path   string
	Device bool   // a block device, not a file
	Format string // raw or qcow2
	// Base is what a qcow2 overlay lies over, and BaseFormat its format; empty without an overlay.
	Base       string
	BaseFormat string
	ReadOnly   bool
	Shared     bool // other machines write to it meanwhile
	// Remote is the disk at its server if there is no Path, or what the overlay at Path lies over.
	Remote *Remote
}

// diskFile is where the disk of a Filesystem claim is.
func diskFile(volume string) string { return path.Join(launch.FilesDir, volume, "disk.img") }

// diskDevice is where a Block claim is.
func diskDevice(volume string) string { return path.Join(launch.BlockDir, volume) }
