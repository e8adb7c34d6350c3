// Package layerdisk makes a disk of the filesystems of a container image's layers: a chain of qcow2 files, with one layer in each.
// The disk of each file is as large as all layers so far; it holds its layer's filesystem behind those below it, and a partition
// table that names all of them. The guest sees one disk with a partition for each layer, and a last one for what it writes.
//
// Files are written once, from front to back, by no other program than this, and the same layers give the same bytes. It does not know what
// is in a filesystem.
package layerdisk

import (
	"fmt"
	"io"

	"github.com/berth-vm/berth/internal/task"
)

// MaxLayers leaves one of a partition table's 128 entries for what the guest writes. Container runtimes allow as many.
const MaxLayers = maxParts - 1

// LayerFile returns the name of a layer's file; there is none below the lowest layer, which is 0.
func LayerFile(n int) string {
	if n < 0 {
		return ""
	}
	return fmt.Sprintf("%03d.qcow2", n)
}

// align is the alignment of partitions and of a disk's size.
const align = 1 << 20

// Disk is a file of the stack with all those below it.
type Disk struct {
	Below string // the name of the file below this one, in the same directory; empty: none
	Size  int64  // of the disk that the guest sees
	Parts []Part
}

// Part is a partition.
type Part struct {
	Name        string
	Start, Size int64
}

// File is the file that a layer is written to.
type File interface {
	io.ReaderAt
	io.WriterAt
}

// Filesystem returns the layer's filesystem in a file of the stack.
func Filesystem(f io.ReaderAt) io.ReaderAt { return readSection{f} }

type readSection struct{ f io.ReaderAt }

// ReadAt implements io.ReaderAt.
func (s readSection) ReadAt(p []byte, off int64) (int, error) { return s.f.ReadAt(p, cluster+off) }

// section is the part of a file that has the layer's filesystem.
type section struct{ f File }

// ReadAt implements io.ReaderAt.
func (s section) ReadAt(p []byte, off int64) (int, error) { return s.f.ReadAt(p, cluster+off) }

// WriteAt implements io.WriterAt.
func (s section) WriteAt(p []byte, off int64) (int, error) { return s.f.WriteAt(p, cluster+off) }

// Layer adds a layer: fill writes its filesystem and says how large it is. It is written to a new file over the disk, whose own file is named below.
// What fill got can be read as long as the file can.
func (d Disk) Layer(to File, below, name string, fill func(File) (int64, error)) (Disk, error) {
	if len(d.Parts) >= MaxLayers {
		return Disk{}, task.Errorf(task.UnsupportedImage, "it has more than %d layers", MaxLayers)
	}
	q := newFile(to)
	size, err := fill(section{to}) // behind the header, and next to each other
	if err != nil {
		return Disk{}, err
	}
	next := d.Over(below, name, size)
	q.run(next.Parts[len(next.Parts)-1].Start, size)
	return next, next.seal(q)
}

// Over returns the disk with one more layer, whose filesystem has size bytes: what Layer made, or makes.
func (d Disk) Over(below, name string, size int64) Disk {
	next := d.with(below, Part{Name: name, Start: d.end(), Size: up(size, align)})
	next.Size = next.end() + align
	return next
}

// Room adds the partition that the guest writes to, which ends with the disk.
func (d Disk) Room(to io.WriterAt, below, name string, size int64) (Disk, error) {
	next := d.with(below, Part{Name: name, Start: d.end()})
	next.Size = up(size, align)
	part := &next.Parts[len(next.Parts)-1]
	part.Size = next.Size - align - part.Start
	if part.Size < align {
		return Disk{}, fmt.Errorf("a disk of %d bytes leaves no room behind layers of %d", size, part.Start)
	}
	return next, next.seal(newFile(to))
}

func (d Disk) with(below string, p Part) Disk {
	return Disk{Below: below, Parts: append(append([]Part(nil), d.Parts...), p)}
}

// end returns the end of the last partition.
func (d Disk) end() int64 {
	if len(d.Parts) == 0 {
		return align
	}
	last := d.Parts[len(d.Parts)-1]
	return last.Start + last.Size
}

// Least returns the size of the smallest disk with this much room behind its layers.
func (d Disk) Least(room int64) int64 { return d.end() + up(room, align) + align }

// seal writes the partition table, in front and at the end, and what makes the file a qcow2.
func (d Disk) seal(q *file) error {
	front, back, err := d.table()
	if err != nil {
		return err
	}
	if err := q.put(0, front); err != nil {
		return err
	}
	if err := q.put(d.Size-cluster, back); err != nil {
		return err
	}
	return q.finish(d.Size, d.Below)
}

func up(n, to int64) int64 { return (n + to - 1) / to * to }
