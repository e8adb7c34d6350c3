// Package images holds the names and the user that the product's container images share with manifests, the launcher and the
// tests. How an image is made is in hack/images, what goes into one is in the folders beside this file.
package images

import "strings"

// Names under which the images are loaded into a cluster. They carry their registry so that no container runtime adds its own, and are
// used with imagePullPolicy IfNotPresent: a cluster that was loaded never pulls.
const (
	Berth    = "berth.dev/berth:dev"
	Launcher = "berth.dev/berth-launcher:dev"
	// CSI is the storage driver localdisk with the sidecars it is deployed with.
	CSI = "berth.dev/csi:dev"
	// Guest is the test guest as a container disk: /disk/disk.qcow2, and /boot/vmlinuz and /boot/initrd for booting a kernel directly.
	Guest = "berth.dev/berth-guest:dev"
	// Makers holds the examples of containers that make volumes, with tgt.
	Makers = "berth.dev/volume-makers:dev"
	// GuestGeneric is the same with a kernel that also knows SATA and USB disks and takes twice as long to start.
	GuestGeneric = "berth.dev/berth-guest-generic:dev"
)

// RefName is the annotation by which an image is found in an OCI layout.
const RefName = "org.opencontainers.image.ref.name"

// Repository is an image's name without registry and tag: what it is called in every registry that it is pushed to.
func Repository(image string) string {
	_, name, _ := strings.Cut(image, "/")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// Archives are the file names of the images as OCI archives in the folder that hack/images writes to.
const (
	BerthArchive        = "berth.tar"
	LauncherArchive     = "berth-launcher.tar"
	CSIArchive          = "csi.tar"
	GuestArchive        = "berth-guest.tar"
	MakersArchive       = "volume-makers.tar"
	GuestGenericArchive = "berth-guest-generic.tar"
)

// KernelDir is the folder, where hack/images writes to, of the kernel that machines from container images boot.
const KernelDir = "kernel"

// UID is the user, and the group, that every process in the images runs as and that owns disk images. It is the number that existing
// container disks and KubeVirt's volumes already use for qemu.
const UID = 107
