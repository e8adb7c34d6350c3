package oci

import (
	"archive/tar"
	_ "embed" // the text of this package
	"fmt"
	"io"
	"os"
	"path"
)

// Writer writes the entries of a layer. It fixes what would make two builds differ (times, names of users, the format of a header) and
// makes the folders on the way to an entry, owned by root. An entry written twice is kept as first written.
type Writer struct {
	tar  *tar.Writer
	made map[string]bool
}

// Entry writes one entry; name, mode, owner, type and link are taken from h, the rest is fixed.
func (w *Writer) Entry(h tar.Header, content io.Reader) error {
	h.Name = path.Clean("/" + h.Name)[1:]
	if w.made[h.Name] {
		return nil
	}
	if parent := path.Dir(h.Name); parent != "." && !w.made[parent] {
		if err := w.Dir(parent, 0o755, 0); err != nil {
			return err
		}
	}
	w.made[h.Name] = true
	fixed := tar.Header{
		Typeflag: h.Typeflag, Name: h.Name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode & 0o7777, Uid: h.Uid, Gid: h.Gid,
		ModTime: Epoch, Devmajor: h.Devmajor, Devminor: h.Devminor,
	}
	if h.Typeflag == tar.TypeDir {
		fixed.Name += "/"
	}
	if err := w.tar.WriteHeader(&fixed); err != nil {
		return fmt.Errorf("write header of %s: %w", h.Name, err)
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	if _, err := io.Copy(w.tar, content); err != nil {
		return fmt.Errorf("write %s: %w", h.Name, err)
	}
	return nil
}

// Dir writes a folder; owner is both user and group.
func (w *Writer) Dir(name string, mode int64, owner int) error {
	return w.Entry(tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: owner, Gid: owner}, nil)
}

// Link writes a symbolic link.
func (w *Writer) Link(name, target string) error {
	return w.Entry(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

// File writes a file of the machine that builds.
func (w *Writer) File(name, from string, mode int64, owner int) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("open what becomes %s: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("measure what becomes %s: %w", name, err)
	}
	return w.Entry(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Uid: owner, Gid: owner, Size: info.Size()}, f)
}

// Recipe is to be part of every layer's key: the text of this package decides how the same content becomes a layer.
var Recipe = layerSource + writerSource

var (
	//go:embed layer.go
	layerSource string
	//go:embed writer.go
	writerSource string
)
