package directory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/berth-vm/berth/internal/transfer/sink"
)

// lostAndFound is the filesystem's own directory at its top.
const lostAndFound = "lost+found"

// Nothing rejects every file of a directory.
func Nothing(string) bool { return false }

// empty removes what is in the directory, but for what keep wants, the mark and what the filesystem itself keeps there.
func (d *Directory) empty(keep func(name string) bool) error {
	for {
		removed, err := d.removeSome(keep)
		if err != nil {
			return sink.Failed(fmt.Errorf("remove what an earlier try left: %w", err))
		}
		if !removed {
			return d.sync() // what was removed has its room back only then
		}
	}
}

// removeSome goes through the directory once. Names may be missed while others are removed, so the caller repeats it until there
// are none.
func (d *Directory) removeSome(keep func(name string) bool) (removed bool, err error) {
	f, err := d.root.Open(".")
	if err != nil {
		return false, err
	}
	defer f.Close() // opened for reading
	const some = 256
	for {
		names, err := f.Readdirnames(some)
		for _, name := range names {
			if name == unpackingName || name == lostAndFound || keep(name) {
				continue
			}
			if err := d.remove(name); err != nil {
				return false, err
			}
			removed = true
		}
		if errors.Is(err, io.EOF) || err == nil && len(names) == 0 {
			return removed, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// remove removes all of what has a name. Directories of ours that may not be written to are made writable first.
func (d *Directory) remove(name string) error {
	err := d.root.RemoveAll(name)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = fs.WalkDir(d.root.FS(), name, func(at string, e fs.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			_ = d.root.Chmod(at, 0o700) // removing says what is wrong
		}
		return nil
	})
	return d.root.RemoveAll(name)
}
