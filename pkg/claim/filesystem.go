package claim

import (
	"math"

	storagev1 "k8s.io/api/storage/v1"
)

// Filesystem is a kind of filesystem that drivers put on volumes.
type Filesystem string

// The kinds whose needs are known.
const (
	Ext4 Filesystem = "ext4"
	XFS  Filesystem = "xfs"
)

// fstypeParameter is the parameter of a class that tells CSI drivers which filesystem to make.
const fstypeParameter = "csi.storage.k8s.io/fstype"

// FilesystemOf returns the filesystem that a class sets; ext4 if it sets none, as most drivers do.
func FilesystemOf(class *storagev1.StorageClass) Filesystem {
	if class != nil && Filesystem(class.Parameters[fstypeParameter]) == XFS {
		return XFS
	}
	return Ext4
}

// keeping is the space that filesystems of at least a size keep for themselves: a number of bytes, and a number of every thousand.
type keeping struct{ from, fixed, thousandths int64 }

// kept has, for each kind, upper bounds of what was measured with mkfs.ext4 -m 0 (1.47, and with the options of our own driver)
// and mkfs.xfs (6.1): journal, tables of inodes, room that is kept for emergencies, and a hundredth to write down where the pieces
// of a file are that was written in no order. Journals grow in steps, and below 512 MiB ext4 has four times as many inodes, so the
// share that is configured is too little for small filesystems. From 4 GiB on it counts alone. No xfs is smaller than 300 MiB. The host test TestFilesystemsKeepNoMore holds these numbers.
var kept = map[Filesystem][]keeping{
	Ext4: {{0, 4 << 20, 135}, {128 << 20, 13 << 20, 80}, {512 << 20, 24 << 20, 40}, {1 << 30, 48 << 20, 30}, {2 << 30, 0, 65}, {4 << 30, 0, 0}},
	XFS:  {{0, 300 << 20, 0}, {300 << 20, 96 << 20, 20}, {2 << 30, 0, 65}, {4 << 30, 0, 0}},
}

// Holds returns how large a disk is sure to fit on a new filesystem of a volume of so many bytes or more: drivers round up, and a
// filesystem that is a little larger may keep more. From 4 GiB on that is all of it: what is configured as overhead is not
// counted here, and is enough there.
func (f Filesystem) Holds(volume int64) int64 {
	room := int64(math.MaxInt64)
	steps := kept[f]
	for i, k := range steps {
		if i+1 < len(steps) && volume >= steps[i+1].from {
			continue
		}
		at := max(volume, k.from)
		room = min(room, at-k.fixed-at/1000*k.thousandths)
	}
	return max(0, room)
}
