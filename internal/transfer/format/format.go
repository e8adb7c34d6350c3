// Package format reads disk image formats: each sub-package is one of them. It turns tables into extents; it does not
// fetch, decompress or write the data the extents speak of, and it never opens a file an image names.
//
// Images are untrusted. Every size is checked before it is allocated or multiplied, tables are read in pieces of bounded size, and
// every error is a *task.Error that says what is wrong and where.
package format

import "github.com/berth-vm/berth/internal/transfer/format/extent"

// Kind is a disk image format.
type Kind string

// The formats. Whatever has no other signature is Raw.
const (
	Raw   Kind = "raw"
	QCOW2 Kind = "qcow2"
	VMDK  Kind = "vmdk"
	VDI   Kind = "vdi"
	VHD   Kind = "vhd"
	VHDX  Kind = "vhdx"

	// Unsigned is a stream whose beginning has no signature: Raw, unless its last sector turns out to be the footer of a fixed
	// VHD, which is then no part of the disk. Only Decoder handles it.
	Unsigned Kind = "raw, or a fixed vhd"
)

// Package extent explains the words formats and the engine speak.
type (
	// Coding is how an extent's bytes are stored.
	Coding = extent.Coding
	// Extent says which bytes of the file are which bytes of the disk.
	Extent = extent.Extent
	// Image is an image whose file can be read anywhere.
	Image = extent.Image
	// Output takes an image apart that comes as a stream.
	Output = extent.Output
)

// The codings.
const (
	Plain   = extent.Plain
	Deflate = extent.Deflate
	Zlib    = extent.Zlib
	Zstd    = extent.Zstd
)
