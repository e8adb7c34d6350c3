// Package launcher runs one virtual machine: it waits until the disks are filled, turns the machine into a libvirt domain (a
// pure function), starts it, gives it disks while it runs, and ends when the guest ends. It runs in the launcher pod,
// without privilege.
//
// It knows libvirt, QEMU and the files of its own pod. It does not know the Kubernetes API: what it is to run comes as
// files the kubelet mounts, and what became of it leaves as readiness, exit and last words.
package launcher

import (
	"net"
	"os"
	"path"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// Backing is what a volume is made of inside the pod.
type Backing struct {
	Path     string
	Device   bool   // a block device, not a file
	Format   string // raw or qcow2
	ReadOnly bool
	Shared   bool // other machines write to it meanwhile
	// Remote is the disk at its server; there is no Path then.
	Remote *Remote
	// Master is what a copy lies over, nil without one. It is only read.
	Master *Backing
	// Held is the open file that Path leads to, if it is none of this pod's. It stays open as long as the guest may read it.
	Held *os.File
	// Keeps: what the guest reads of the master stays in the copy.
	Keeps bool
	// Copied: it is a copy, with its master or without it.
	Copied bool
	// Early is a connection to the worker that serves the disk as Remote while it fills it; nil: it is complete.
	Early net.Conn
	// Orders is the file that says what the guest is to run, if it is one of a container image's layers; empty: it boots by itself.
	Orders string
	// Limit is how long the file may become; 0: its medium says when it is full.
	Limit int64
}

// node is the disk as QEMU's own programs have it.
func (b Backing) node() map[string]any {
	file := map[string]any{"driver": "file", "filename": b.Path}
	switch {
	case b.Remote != nil:
		file = b.Remote.Node(secretObject, tlsObject(b.Remote))
	case b.Device:
		file["driver"] = "host_device"
	}
	return map[string]any{"driver": b.Format, "file": file}
}

// diskFile is where the disk of a Filesystem claim is.
func diskFile(volume string) string { return path.Join(launcherapi.FilesDir, volume, "disk.img") }

// diskDevice is where a Block claim is.
func diskDevice(volume string) string { return path.Join(launcherapi.BlockDir, volume) }
