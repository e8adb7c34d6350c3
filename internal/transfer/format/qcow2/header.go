// Package qcow2 reads QEMU's copy-on-write format, version 2 and 3: plain, zero and compressed clusters, subclusters,
// any cluster size. It follows the active tables only; snapshots inside the file, reference counts and bitmaps are not
// looked at. It refuses whatever would make it open another file.
package qcow2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// The bits of the header's incompatible features.
const (
	dirty        = 1 << 0 // reference counts may be stale: nothing we read
	corrupt      = 1 << 1
	externalData = 1 << 2
	compression  = 1 << 3
	extendedL2   = 1 << 4

	known = dirty | corrupt | externalData | compression | extendedL2
)

// The header extensions whose text a refusal quotes.
const (
	extensionEnd      = 0
	extensionFeatures = 0x6803f857
	extensionDataFile = 0x44415441
)

const (
	magic = "QFI\xfb"
	// headSize is the part of the file in which the header and its texts must be.
	headSize = 64 << 10
	// maxL1 is the largest L1 table QEMU opens, in bytes. With 64 KiB clusters it describes 2 PiB.
	maxL1 = 32 << 20
)

// header has the fields that reading the tables needs.
type header struct {
	version     uint32
	clusterBits uint
	disk        int64
	l1Offset    int64
	l1Size      int64 // bytes of it that are needed for the disk
	extended    bool
	coding      extent.Coding
	backing     string // the name of the image below, quoted for messages; empty: there is none
}

func (h *header) cluster() int64 { return 1 << h.clusterBits }

// entrySize returns the size of an L2 entry.
func (h *header) entrySize() int64 {
	if h.extended {
		return 16
	}
	return 8
}

// reach returns how much of the disk one L2 table describes.
func (h *header) reach() int64 { return h.cluster() / h.entrySize() << h.clusterBits }

// parse reads the header of an image that is whole from the first headSize bytes of the file, or all of them if it is shorter.
func parse(head []byte) (*header, error) {
	h, err := parseLayer(head)
	if err == nil && h.backing != "" {
		return nil, task.Errorf(task.UnsafeImage, "image is invalid because it has invalid backing file %s: an import never opens another file; "+
			"make it whole with: qemu-img convert -O qcow2 IMAGE WHOLE.qcow2", h.backing)
	}
	return h, err
}

// parseLayer is parse for an image that may lie over another.
func parseLayer(head []byte) (*header, error) {
	if len(head) < 72 || string(head[:4]) != magic {
		return nil, task.Errorf(task.BadImage, "%w: a qcow2 header has at least 72 bytes and begins with %q, this file has %d",
			task.ErrTruncated, magic, len(head))
	}
	be := binary.BigEndian
	h := &header{version: be.Uint32(head[4:]), coding: extent.Deflate}
	if h.version != 2 && h.version != 3 {
		return nil, task.Errorf(task.UnsupportedImage, "Invalid format qcow2 version %d for image: versions 2 and 3 are known", h.version)
	}
	if bits := be.Uint32(head[20:]); bits >= 9 && bits <= 21 {
		h.clusterBits = uint(bits)
	} else {
		return nil, task.Errorf(task.BadImage, "qcow2 cluster_bits is %d, it must be 9 to 21", bits)
	}
	features, end, err := h.features(head)
	if err != nil {
		return nil, err
	}
	if off := be.Uint64(head[8:]); off != 0 {
		h.backing = quote(head, off, uint64(be.Uint32(head[16:])))
	}
	if err := safe(head, features, end); err != nil {
		return nil, err
	}
	if err := h.sound(head, end); err != nil {
		return nil, err
	}
	return h, h.geometry(head)
}

// features reads what version 3 added, and returns the incompatible features and where the header ends.
func (h *header) features(head []byte) (features uint64, end int, err error) {
	be := binary.BigEndian
	if h.version == 2 {
		return 0, 72, nil
	}
	if len(head) < 104 {
		return 0, 0, task.Truncated("qcow2 header", 0, 104, int64(len(head)))
	}
	features = be.Uint64(head[72:])
	length := be.Uint32(head[100:])
	if length < 104 || int64(length) > h.cluster() {
		return 0, 0, task.Errorf(task.BadImage, "qcow2 header_length is %d, it must be 104 to the cluster size %d", length, h.cluster())
	}
	end = int(length)
	if unknown := features &^ known; unknown != 0 {
		return 0, 0, task.Errorf(task.UnsupportedImage, "qcow2 has incompatible features nobody here knows: %s",
			strings.Join(names(head, end, unknown), ", "))
	}
	var method byte
	if length > 104 && len(head) > 104 {
		method = head[104]
	}
	if (method != 0) != (features&compression != 0) {
		return 0, 0, task.Errorf(task.BadImage, "qcow2 compression type is %d but its feature bit says otherwise (incompatible features %#x)",
			method, features)
	}
	switch method {
	case 0:
	case 1:
		h.coding = extent.Zstd
	default:
		return 0, 0, task.Errorf(task.UnsupportedImage, "qcow2 compression type %d is unknown: zlib (0) and zstd (1) are known", method)
	}
	h.extended = features&extendedL2 != 0
	if h.extended && h.clusterBits < 14 {
		return 0, 0, task.Errorf(task.BadImage, "qcow2 has subclusters with clusters of %d bytes, they need at least 16384", h.cluster())
	}
	return features, end, nil
}

// safe refuses an image whose data is in another file, or that is encrypted or known to be broken.
func safe(head []byte, features uint64, end int) error {
	be := binary.BigEndian
	if features&externalData != 0 {
		return task.Errorf(task.UnsafeImage, "image is invalid because its data is in the external file %s: an import never opens another "+
			"file; make it whole with: qemu-img convert -O qcow2 IMAGE WHOLE.qcow2", dataFile(head, end))
	}
	if method := be.Uint32(head[32:]); method != 0 {
		return task.Errorf(task.UnsupportedImage, "qcow2 is encrypted (method %d); decrypt it with: qemu-img convert", method)
	}
	if features&corrupt != 0 {
		return task.Errorf(task.BadImage, "qcow2 is marked corrupt; repair it with: qemu-img check -r all IMAGE")
	}
	return nil
}

// sound refuses a header with places in it that cannot be. An import needs neither refcounts nor snapshots nor extensions, but
// where their places are wrong, bytes were lost or changed on the way, and what follows is read from wrong places too.
func (h *header) sound(head []byte, end int) error {
	be := binary.BigEndian
	for what, at := range map[string]int{"refcount table": 48, "snapshot table": 64} {
		if off := be.Uint64(head[at:]); off&uint64(h.cluster()-1) != 0 {
			return task.Errorf(task.BadImage, "qcow2 %s is at byte %d, which is no multiple of the cluster size %d: the header is damaged", what, off, h.cluster())
		}
	}
	for at := int64(end); at+8 <= int64(len(head)) && be.Uint32(head[at:]) != extensionEnd; {
		n := int64(be.Uint32(head[at+4:]))
		if at+8+n > h.cluster() {
			return task.Errorf(task.BadImage, "qcow2 header extension at byte %d has %d bytes, more than the cluster of the header: the header is damaged", at, n)
		}
		at += 8 + (n+7)&^7
	}
	return nil
}

// geometry reads sizes and the place of the L1 table.
func (h *header) geometry(head []byte) error {
	be := binary.BigEndian
	size := be.Uint64(head[24:])
	if size > math.MaxInt64 {
		return task.Errorf(task.BadImage, "qcow2 virtual size %d is larger than any disk", size)
	}
	// QEMU counts sectors, so it ignores the rest of an odd size; so must the disk that is made from it.
	h.disk = int64(size) &^ 511
	entries := h.disk / h.reach()
	if h.disk%h.reach() != 0 {
		entries++
	}
	has := int64(be.Uint32(head[36:]))
	if has*8 > maxL1 || entries*8 > maxL1 || entries > math.MaxInt64/8 {
		return task.Errorf(task.BadImage, "qcow2 L1 table has %d entries for a virtual size of %d, at most %d are possible",
			max(has, entries), size, maxL1/8)
	}
	if has < entries {
		return task.Errorf(task.BadImage, "qcow2 L1 table has %d entries, a virtual size of %d with clusters of %d needs %d",
			has, size, h.cluster(), entries)
	}
	off := be.Uint64(head[40:])
	if off > math.MaxInt64-maxL1 || off&uint64(h.cluster()-1) != 0 {
		return task.Errorf(task.BadImage, "qcow2 L1 table is at byte %d, which is no multiple of the cluster size %d", off, h.cluster())
	}
	h.l1Offset, h.l1Size = int64(off), entries*8
	return nil
}

// extensions calls do with each header extension that lies in head, until it says true.
func extensions(head []byte, at int, do func(kind uint32, body []byte) bool) {
	for at+8 <= len(head) {
		kind, n := binary.BigEndian.Uint32(head[at:]), int64(binary.BigEndian.Uint32(head[at+4:]))
		at += 8
		if kind == extensionEnd || n > int64(len(head)-at) || do(kind, head[at:at+int(n)]) {
			return
		}
		at += int(n+7) &^ 7
	}
}

// names looks up what the image itself calls the features that are set.
func names(head []byte, end int, features uint64) []string {
	found := map[int]string{}
	extensions(head, end, func(kind uint32, body []byte) bool {
		if kind != extensionFeatures {
			return false
		}
		for ; len(body) >= 48; body = body[48:] {
			if body[0] == 0 && body[1] < 64 {
				found[int(body[1])] = fmt.Sprintf("%q", bytes.TrimRight(body[2:48], "\x00"))
			}
		}
		return true
	})
	var list []string
	for bit := range 64 {
		if features&(1<<bit) == 0 {
			continue
		}
		if name, ok := found[bit]; ok {
			list = append(list, name)
		} else {
			list = append(list, fmt.Sprintf("bit %d", bit))
		}
	}
	return list
}

func dataFile(head []byte, end int) string {
	name := "that it does not name"
	extensions(head, end, func(kind uint32, body []byte) bool {
		if kind == extensionDataFile {
			name = quote(body, 0, uint64(len(body)))
			return true
		}
		return false
	})
	return name
}

// quote makes a name an image gives fit for a message: at most 1023 bytes (QEMU's own limit), and nothing of it can be
// mistaken for the message's own words.
func quote(p []byte, off, n uint64) string {
	if n == 0 || n > 1023 || off > uint64(len(p)) || n > uint64(len(p))-off {
		return fmt.Sprintf("(a name of %d bytes at byte %d)", n, off)
	}
	return fmt.Sprintf("%q", p[off:off+n])
}
