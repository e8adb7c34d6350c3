// Package backing describes what a volume is inside the pod: a file, a device, a copy over a master, or a disk at a server, where each of
// them is, and how large it is.
//
// It does not make disks from images or copies from masters, connects to no server, and does not know libvirt.
package backing

import (
	"net"
	"os"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
)

// Disk is the disk of a volume as QEMU opens it.
type Disk struct {
	Path     string
	Device   bool   // a block device, not a file
	Format   string // raw or qcow2
	ReadOnly bool
	Shared   bool // other machines write to it too
	// Remote is the disk at its server, or at a socket of this pod; Path is not used then.
	Remote *Remote
	// Master is the disk that a copy is an overlay of; nil if it has none. It is only read.
	Master *Disk
	// Held is the open file of the node's cache of layers that Path is a link to; nil if the file is this pod's own. It stays open for as long
	// as the guest may read it.
	NodeFile *os.File
	// Keeps says that data which the guest reads from the master is stored in the copy.
	CopyOnRead bool
	// Copied says that it is a copy, also when it no longer needs its master.
	Copied bool
	// Early is a connection to the worker that fills the disk and serves it as Remote meanwhile; nil if the disk is complete.
	Early net.Conn
	// Orders is the file with the program of a container image that the guest runs; empty if the guest boots from its disk.
	Orders string
	// Limit is the length that the file may reach; 0 if only its medium limits it.
	Limit int64
}

// Node is the block node of the disk, as QEMU's programs take it in a "json:" name.
func (b Disk) Node() map[string]any {
	file := map[string]any{"driver": "file", "filename": b.Path}
	switch {
	case b.Remote != nil:
		file = b.Remote.Node(SecretObject, TLSObject(b.Remote))
	case b.Device:
		file["driver"] = "host_device"
	}
	return map[string]any{"driver": b.Format, "file": file}
}

// SecretObject is the id of the object with the password of a disk, in QEMU's programs.
const SecretObject = "login"

// TLSObject is the id of the object with the certificates of a disk; empty if its connection has no TLS.
func TLSObject(r *Remote) string {
	if r.TLS {
		return "certificates"
	}
	return ""
}

// Remote is a disk that QEMU opens at a server.
type Remote struct {
	netdisk.Address
	Only    []string // the addresses that may be connected to; empty if any may
	TLSDir  string   // where the certificates are
	Device  string   // QEMU's id of the device, if the disk was added while the guest ran; otherwise empty
	Granted bool     // an administrator gave it to the machine, so the rules for servers that users name do not apply
}

// SecretUsage is the name of a volume's secret in libvirt.
func SecretUsage(volume string) string { return "volume-" + volume }

// OnSocket is a disk that a program of this pod serves at a socket.
func OnSocket(path string) *Remote {
	return &Remote{Address: netdisk.OnSocket(path)}
}

// UsesNodeFiles reports whether the disk or one of its masters is a file of the node's cache of layers.
func (b Disk) UsesNodeFiles() bool {
	return b.NodeFile != nil || b.Master != nil && b.Master.UsesNodeFiles()
}

// CloseNodeFiles closes the files of the node's cache that the disk uses.
func (b Disk) CloseNodeFiles() {
	for at := &b; at != nil; at = at.Master {
		if at.NodeFile != nil {
			_ = at.NodeFile.Close()
		}
	}
}

// NewRemote is the disk of a volume, with the user that its Secret names. A disk at a URL is not one: it comes by way of a
// socket of this pod.
func NewRemote(m launcherapi.Machine, v kubevirt.Volume, user string) (*Remote, error) {
	at, err := netdisk.Open(v.NetworkSource, netdisk.Client{Namespace: m.Namespace, Name: m.Name, Portals: m.Direct[v.Name].Portals})
	if err != nil {
		return nil, err
	}
	at.User = user
	return &Remote{Address: at}, nil
}
