package format

import (
	"bytes"
	"encoding/binary"

	"github.com/berth-vm/berth/internal/transfer/format/vhd"
)

// HeadSize is how many of a file's first bytes Detect needs, and TailSize how many of its last.
const (
	HeadSize = 64 << 10
	TailSize = vhd.FooterSize
)

// Detect tells the format from the bytes: head is the beginning of the file (all of it, if it is shorter than HeadSize), tail its
// last TailSize bytes, size its length. Names and media types are never asked.
//
// A fixed VHD is a raw disk with a footer behind it. Where the end can be seen, the footer decides, if it is intact and describes
// a file of exactly this size. Where it cannot, tail is nil and the answer for a file without a signature is Unsigned: the
// Decoder looks at the last bytes when they come.
//
// The first bytes of a volume that a guest has written are the guest's to choose (CVE-2026-24708), so a copy of such a volume
// does not call Detect: it uses Raw, and no byte is interpreted.
func Detect(head, tail []byte, size int64) Kind {
	switch {
	case bytes.HasPrefix(head, []byte("QFI\xfb")):
		return QCOW2
	case bytes.HasPrefix(head, []byte("KDMV")), bytes.HasPrefix(head, []byte("COWD")), descriptor(head):
		return VMDK
	case len(head) >= 0x44 && binary.LittleEndian.Uint32(head[0x40:]) == 0xbeda107f:
		return VDI
	case bytes.HasPrefix(head, []byte("vhdxfile")):
		return VHDX
	case bytes.HasPrefix(head, []byte("conectix")):
		return VHD
	case tail == nil:
		return Unsigned
	case vhd.IsFixed(tail, size):
		return VHD
	}
	return Raw
}

// descriptor reports whether the file is the text that describes a VMDK in other files. The text may begin with
// comments and empty lines, but not with anything else.
func descriptor(head []byte) bool {
	for line := range bytes.Lines(head[:min(len(head), 4096)]) {
		line = bytes.TrimSpace(line)
		switch {
		case bytes.EqualFold(line, []byte("# Disk DescriptorFile")):
			return true
		case len(line) > 0 && line[0] != '#':
			return bytes.HasPrefix(line, []byte("version="))
		}
	}
	return false
}
