// Package debian describes the Debian guest to tests: an ordinary machine from Debian's packages, with systemd, cloud-init, a guest
// agent and sshd. The disk is made by hack/images; nothing in it is ours.
package debian

// The disk: its size, and the partition of the root filesystem, which is the last one and can grow.
const (
	DiskSize   = 1<<30 + 128<<20
	RootOffset = 64 << 20
	RootSize   = 1008 << 20
)

// QCOW2 is the disk in the folder that hack/images writes to.
const QCOW2 = "debian.qcow2"
