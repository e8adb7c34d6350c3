package registry

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"strings"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/source"
)

const (
	root     = "disk" // where the disk is, without the leading slash
	whiteout = ".wh." // a file of this prefix takes away the one of the rest's name in the layers below
	opaque   = ".wh..wh..opq"
	block    = 512 // of tar
)

// coverLimit bounds what is remembered of the layers above: no real image has more files below /disk/.
const coverLimit = 10_000

// cover records what the layers above remove from those below.
type cover struct {
	gone   map[string]bool // paths, with all below them
	opaque map[string]bool // directories whose whole content is removed, but not they themselves
}

// all reports whether all files under /disk/ of lower layers are hidden.
func (c *cover) all() bool { return c.gone[root] || c.opaque[root] || c.opaque["."] }

// hides holds if an entry of a lower layer is taken away.
func (c *cover) hides(name string) bool {
	if c.gone[name] {
		return true
	}
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if c.gone[dir] || c.opaque[dir] {
			return true
		}
		if dir == "." {
			return false
		}
	}
}

// add records the files that a layer hides, if they matter.
func (c *cover) add(name string) error {
	dir, base := path.Dir(name), path.Base(name)
	if c.gone == nil {
		c.gone, c.opaque = map[string]bool{}, map[string]bool{}
	}
	if len(c.gone)+len(c.opaque) >= coverLimit {
		return task.Errorf(task.BadImage, "more than %d files are taken away from /disk/", coverLimit)
	}
	if base == opaque {
		if dir == "." || inside(dir) {
			c.opaque[dir] = true
		}
		return nil
	}
	if gone := path.Join(dir, strings.TrimPrefix(base, whiteout)); inside(gone) {
		c.gone[gone] = true
	}
	return nil
}

// inside reports whether a name is /disk or below it.
func inside(name string) bool { return name == root || strings.HasPrefix(name, root+"/") }

// merge adds what other takes away.
func (c *cover) merge(other *cover) {
	if c.gone == nil {
		c.gone, c.opaque = map[string]bool{}, map[string]bool{}
	}
	maps.Copy(c.gone, other.gone)
	maps.Copy(c.opaque, other.opaque)
}

// locate looks for the disk in a layer, below what the layers above cover. It is nil if there is none, and what this
// layer takes away from those below is then added to above.
func locate(ctx context.Context, b source.Blob, above *cover) (*source.Member, error) {
	// Small chunks: as a rule the disk's header is in the first, and what was fetched besides is fetched again later.
	plain, err := decompressed(ctx, b, source.AheadOptions{Chunk: 1 << 20}, decode.Options{})
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	return scan(plain, above)
}

// decompressed reads a layer as the archive that it is.
func decompressed(ctx context.Context, b source.Blob, o source.AheadOptions, d decode.Options) (io.ReadCloser, error) {
	ahead, err := source.NewAhead(ctx, b, 0, o)
	if err != nil {
		return nil, err
	}
	plain, err := decode.Open(ahead, d)
	if err != nil {
		_ = ahead.Close() // err is what matters
		return nil, err
	}
	return &decoded{Reader: plain, ahead: ahead}, nil
}

// decoded ends what it reads from as well.
type decoded struct {
	decode.Reader
	ahead io.Closer
}

func (d *decoded) Close() error { return errors.Join(d.Reader.Close(), d.ahead.Close()) }

// scan is locate for a decompressed layer.
func scan(r io.Reader, above *cover) (*source.Member, error) {
	at := &counter{r: bufio.NewReaderSize(r, 64<<10)} // counts behind the buffer, where tar reads block by block
	archive := tar.NewReader(at)
	own := &cover{}
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			above.merge(own)
			return nil, nil
		}
		if err != nil {
			return nil, broken(err)
		}
		name := clean(h.Name)
		found, err := judge(h, name, above, own)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		return &source.Member{
			Name: "/" + name, Offset: at.n, Size: h.Size,
			Rest: func(r io.Reader) error { return rest(r, "/"+name, h.Size, above) },
		}, nil
	}
}

// clean returns an entry's path without a slash in front.
func clean(name string) string {
	name = path.Clean("/" + name)[1:]
	if name == "" {
		return "."
	}
	return name
}

// judge reports whether an entry is a disk, or what is wrong with it. What it takes away from lower layers goes to own.
func judge(h *tar.Header, name string, above, own *cover) (bool, error) {
	if strings.HasPrefix(path.Base(name), whiteout) {
		return false, own.add(name)
	}
	if !inside(name) || above.hides(name) {
		return false, nil
	}
	kind := map[byte]string{tar.TypeLink: "hard link", tar.TypeSymlink: "symbolic link", tar.TypeChar: "device",
		tar.TypeBlock: "device", tar.TypeFifo: "pipe"}[h.Typeflag]
	switch {
	case h.Typeflag == tar.TypeDir:
		return false, nil
	case kind != "":
		return false, task.Errorf(task.UnsafeImage, "/%s is a %s: the disk must be a plain file", name, kind)
	case name == root:
		return false, task.Errorf(task.BadImage, "/%s is a file: the disk must be a file in a directory of that name", name)
	case h.Typeflag == tar.TypeGNUSparse || h.PAXRecords["GNU.sparse.major"] != "" || h.PAXRecords["GNU.sparse.map"] != "":
		return false, task.Errorf(task.UnsupportedImage, "/%s is stored as a sparse file of tar: make the layer without --sparse",
			name)
	case h.Typeflag != tar.TypeReg:
		return false, task.Errorf(task.UnsupportedImage, "/%s is of the unknown tar type %q", name, h.Typeflag)
	}
	return true, nil
}

// shown bounds how many names a message lists.
const shown = 10

// rest reads the end of a layer behind the disk and finds out whether there is another.
func rest(r io.Reader, first string, size int64, above *cover) error {
	if _, err := io.CopyN(io.Discard, r, (block-size%block)%block); err != nil {
		return broken(err)
	}
	names := []string{first}
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return broken(err)
		}
		name := clean(h.Name)
		found, err := judge(h, name, above, &cover{})
		if err != nil {
			return err
		}
		if found && len(names) <= shown {
			names = append(names, "/"+name)
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // the padding, which the digest covers too
		return broken(err)
	}
	if len(names) == 1 {
		return nil
	}
	list := strings.Join(names[:min(len(names), shown)], ", ")
	if len(names) > shown {
		list += ", ..."
	}
	return task.Errorf(task.BadImage, "the image has more than one file under /disk/ (%s): a container disk has one", list)
}

// broken returns the error for a layer that is no tar archive.
func broken(err error) error {
	var known *task.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	return task.Errorf(task.BadImage, "it is no valid tar archive: %w", err)
}

// counter counts what was read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("at byte %d: %w", c.n, err)
	}
	return n, err
}
