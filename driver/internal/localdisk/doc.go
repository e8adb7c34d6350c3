// Package localdisk is a CSI driver for disks of virtual machines on the storage of one node.
//
// A pool is a directory that an administrator marked as one. A volume is a directory in it with an image file, disk.img, whose
// length is the volume's size, and a record, volume.json, that is written once and never changes. Both are made in making/ and
// moved into place by one rename; they go by one rename to trash/. So at any moment a volume is there or it is not, and what a
// crash left in making/ or trash/ is removed at the next start. Whether a volume is attached or mounted is never written down:
// the kernel's loop devices and mount table are asked. What is not there is gone only if the pool is.
//
// Where the pool's filesystem shares blocks between files (XFS, btrfs), snapshots and clones take a moment whatever their size;
// elsewhere they are sparse copies of volumes that are not in use meanwhile.
//
// The package deliberately does not know the API of Kubernetes, other nodes' pools, or what is in a volume. Of the kubelet it
// knows the paths, to take away what a kubelet that was killed has forgotten.
package localdisk
