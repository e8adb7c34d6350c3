package localdisk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// resize makes an image as long as asked, never shorter. Preallocated bytes are taken beyond the end first and the length
// is set last, so that a crash between leaves the old size; the next try finds the blocks there.
func resize(image *os.File, bytes int64, preallocated bool) error {
	st, err := image.Stat()
	if err != nil {
		return err
	}
	if preallocated {
		if err := allocate(image, st.Size(), bytes); err != nil {
			return errors.Join(err, image.Truncate(st.Size())) // gives back what was taken beyond the end
		}
	}
	if bytes > st.Size() {
		if err := image.Truncate(bytes); err != nil {
			return fmt.Errorf("grow %s to %d bytes: %w", image.Name(), bytes, err)
		}
	}
	return nil
}

// allocate gives a file blocks of its own for its first bytes: what it shares with another file is copied, for a shared
// block needs a new one when it is written. length is the file's.
func allocate(image *os.File, length, bytes int64) error {
	if err := unix.Fallocate(int(image.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, bytes); err != nil {
		return fmt.Errorf("allocate %d bytes of %s: %w", bytes, image.Name(), err)
	}
	if length == 0 {
		return nil
	}
	err := unix.Fallocate(int(image.Fd()), unix.FALLOC_FL_UNSHARE_RANGE|unix.FALLOC_FL_KEEP_SIZE, 0, length)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) { // a filesystem that shares nothing has nothing to copy
		return fmt.Errorf("unshare %d bytes of %s: %w", length, image.Name(), err)
	}
	return nil
}

// grow makes a volume larger; one that is large enough is left alone. The image's length is the size, so there is no
// state between the old one and the new one.
func (p *pool) grow(v *disk, bytes int64) error {
	if bytes <= v.size {
		return nil
	}
	release, err := p.reserve("grow-"+v.id.key, bytes-v.size, v.Preallocated)
	if err != nil {
		return err
	}
	defer release()
	image, err := os.OpenFile(p.image(v.id), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer image.Close()
	p.reached("grow: reserved")
	if err := resize(image, bytes, v.Preallocated); err != nil {
		return p.explainFull(err, bytes)
	}
	p.reached("grow: sized")
	if err := image.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", image.Name(), err)
	}
	p.reached("grow: lasting")
	v.size = bytes
	return nil
}
