package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Note implements Checkpoint. A note without a disk beside it is left over from a volume that was emptied manually.
func (f *file) Note() ([]byte, error) {
	_, errPart := os.Lstat(f.beside("part"))
	_, errFinal := os.Lstat(f.o.Path)
	if errPart != nil && errFinal != nil {
		return nil, nil
	}
	h, err := os.OpenFile(f.beside("note"), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, Failed(fmt.Errorf("read the checkpoint: %w", err))
	}
	defer h.Close() // opened for reading
	return unseal(h)
}

// Save implements Checkpoint.
func (f *file) Save(note []byte) error {
	f.noting.Lock()
	defer f.noting.Unlock()
	if note != nil && f.ending {
		return errors.New("nothing can be noted after parked bytes were forgotten")
	}
	name := f.beside("note")
	if note == nil {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Failed(fmt.Errorf("remove the checkpoint: %w", err))
		}
		return nil
	}
	if err := Replace(name, seal(note, 0)); err != nil {
		return Failed(fmt.Errorf("write the checkpoint: %w", err))
	}
	return nil
}
