// Package debian describes the Debian guest to tests: an ordinary machine from Debian's packages, with systemd, cloud-init, a guest
// agent and sshd; and the root filesystem of an ordinary container image, with a shell and a web server. Both are made by hack/images; nothing
// in them is ours.
package debian

// The disk: its size, and the partition of the root filesystem, which is the last one and can grow.
const (
	DiskSize   = 1<<30 + 128<<20
	RootOffset = 64 << 20
	RootSize   = 1008 << 20
)

// The files in the folder that hack/images writes to: the disk, and the one layer of the container image.
const (
	QCOW2 = "debian.qcow2"
	Layer = "container.tar"
)
