// Package launch runs one virtual machine: it waits until the disks are filled, turns the machine into a libvirt
// domain (a pure function), starts it, and ends when the guest ends. It runs in the launcher pod, without privilege.
//
// It knows libvirt, QEMU and the files of its own pod. It does not know the Kubernetes API: what it is to run comes as
// files the kubelet mounts, and what became of it leaves as readiness, exit and last words.
package launch

import (
	"path"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// Where things are in the launcher pod. The render package mounts them there.
const (
	TaskDir  = "/etc/berth/machine" // the files Machine and Go, projected from the pod's own annotations
	TaskFile = "machine.json"
	GoFile   = "go" // says "yes" once every disk is filled
	FilesDir = "/run/berth/volumes"
	BlockDir = "/dev/berth"
	StateDir = "/run/berth/state" // overlays, generated images, sockets: lost with the pod
	OwnDir   = "/run/berth/launcher"
)

// Machine is what a launcher is given: the instance's own spec and what only the controller knows.
type Machine struct {
	Namespace string                              `json:"namespace"`
	Name      string                              `json:"name"`
	UID       string                              `json:"uid"`
	Spec      kubevirt.VirtualMachineInstanceSpec `json:"spec"`
	// Emulate allows a guest without hardware virtualisation.
	Emulate bool `json:"emulate,omitempty"`
	// Block names the volumes whose claims are devices; the others are directories with a disk.img.
	Block []string `json:"block,omitempty"`
}

// Backing is what a volume is made of inside the pod.
type Backing struct {
	Path   string
	Device bool   // a block device, not a file
	Format string // raw or qcow2
	// Base is what a qcow2 overlay lies over, and BaseFormat its format; empty without an overlay.
	Base       string
	BaseFormat string
	ReadOnly   bool
}

// diskFile is where the disk of a Filesystem claim is.
func diskFile(volume string) string { return path.Join(FilesDir, volume, "disk.img") }

// diskDevice is where a Block claim is.
func diskDevice(volume string) string { return path.Join(BlockDir, volume) }
