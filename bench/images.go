package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// images makes the images and keeps them: real files of this machine on an ext4 filesystem that fills a disk of which
// most is empty, in every wrapping that is measured.
type images struct {
	dir  string
	log  io.Writer
	data int64 // MB
	disk int64 // MiB
}

func (m *images) path(name string) string { return filepath.Join(m.dir, name) }

// recipes are the commands that make each image from those before it. $d is the disk, $o the image.
var recipes = []struct{ name, script string }{
	{"a.qcow2", `qemu-img convert -f raw -O qcow2 -c "$d" "$o"`},
	{"b.qcow2", `qemu-img convert -f raw -O qcow2 "$d" "$o"`},
	{"d.raw.gz", `pigz -c "$d" >"$o"`},
	{"e.raw.xz", `xz -T0 -1 -c "$d" >"$o"`}, // a higher level takes longer than all else together
	{"f.raw.zst", `zstd -q -T0 -c "$d" >"$o"`},
	{"g.tar.gz", `tar -C "$(dirname "$d")" --transform 's,.*,disk/disk.qcow2,' -cf - b.qcow2 | pigz >"$o"`},
	{"h.tar.gz", `tar -C "$(dirname "$d")" --transform 's,.*,disk/disk.qcow2,' -cf - a.qcow2 | pigz >"$o"`},
}

// make makes what is not there yet of the images whose names begin with these letters.
func (m *images) make(ctx context.Context, letters string) error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	if err := m.makeDisk(ctx); err != nil {
		return err
	}
	for _, r := range recipes {
		if !strings.Contains(letters, r.name[:1]) {
			continue
		}
		err := m.once(r.name, func(part string) error {
			fmt.Fprintf(m.log, "make %s\n", r.name)
			return shell(ctx, fmt.Sprintf("set -o pipefail; d='%s' o='%s'\n%s", m.path("c.raw"), part, r.script))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// once makes a file under another name first, so that one that was interrupted is not taken for finished.
func (m *images) once(name string, make func(part string) error) error {
	if _, err := os.Stat(m.path(name)); err == nil {
		return nil
	}
	part := m.path(name + ".part")
	if err := make(part); err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	return os.Rename(part, m.path(name))
}

func (m *images) makeDisk(ctx context.Context) error {
	return m.once("c.raw", func(part string) error {
		root := m.path("root")
		defer os.RemoveAll(root)
		fmt.Fprintf(m.log, "make c.raw: %d MB of this machine's files on a disk of %d MiB\n", m.data, m.disk)
		n, err := gather(root, m.data*1e6)
		if err != nil {
			return err
		}
		fmt.Fprintf(m.log, "  %d MB gathered\n", n/1e6)
		return shell(ctx, fmt.Sprintf("mke2fs -q -F -t ext4 -b 4096 -E root_owner=0:0,lazy_itable_init=1 -d '%s' '%s' %dM", root, part, m.disk))
	})
}

// gather links (or copies) files from /usr into root until there are so many bytes: programs first, then what they share,
// then libraries, as a disk has of each.
func gather(root string, want int64) (got int64, err error) {
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/share", "/usr/lib"} {
		err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || got >= want {
				return fs.SkipAll
			}
			to := filepath.Join(root, strings.TrimPrefix(path, "/"))
			switch {
			case e.IsDir():
				return os.MkdirAll(to, 0o755)
			case e.Type() == fs.ModeSymlink:
				target, err := os.Readlink(path)
				if err != nil {
					return err
				}
				return os.Symlink(target, to) //nolint:gosec // G122: nobody plays tricks in this machine's own /usr
			case e.Type().IsRegular():
				n, err := place(path, to)
				got += n
				return err
			}
			return nil
		})
		if err != nil {
			return got, err
		}
	}
	return got, nil
}

func place(path, to string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if os.Link(path, to) == nil {
		return info.Size(), nil
	}
	in, err := os.Open(path)
	if err != nil {
		return 0, nil //nolint:nilerr // a file that this user may not read is not on the disk
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(out, in)
	if err := out.Close(); err != nil {
		return n, err
	}
	return n, err
}
