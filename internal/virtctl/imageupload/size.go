package imageupload

import (
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/format"
)

// errNoSize is the text clients know.
var errNoSize = errors.New("when creating a resource, the size must be specified")

// size returns how large a disk to ask for: what the user said, or else what the image itself says. A compressed image and an
// archive do not say it.
func (o *Options) size() (resource.Quantity, error) {
	if o.Size != "" {
		return resource.ParseQuantity(o.Size)
	}
	if o.Archive != "" {
		return resource.Quantity{}, advise(errNoSize, "%s", giveSize)
	}
	n, err := virtualSize(o.Image)
	if err != nil {
		return resource.Quantity{}, err
	}
	if n == 0 {
		return resource.Quantity{}, advise(
			fmt.Errorf("%w: the image is compressed and does not say how large its disk is", errNoSize), "%s", giveSize)
	}
	return RoundUp(n), nil
}

const giveSize = "Add --size with the size of the volume to make, like --size=10Gi."

// RoundUp is n bytes or a little more: claims are rounded to such units, and they are nicer to read.
func RoundUp(n int64) resource.Quantity {
	const unit = 1 << 20
	return *resource.NewQuantity((n+unit-1)/unit*unit, resource.BinarySI)
}

// virtualSize returns the size of the disk in an image file; 0 if its beginning does not say.
func virtualSize(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	n, err := DiskSize(f, info.Size())
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return n, nil
}

// DiskSize returns the size of the disk in an image of size bytes; 0 if the image does not tell. It reads the beginning, the end,
// and the tables that those refer to.
func DiskSize(image io.ReaderAt, size int64) (int64, error) {
	head := make([]byte, min(size, format.HeadSize))
	if _, err := image.ReadAt(head, 0); err != nil {
		return 0, err
	}
	if decode.Detect(head) != decode.None {
		return 0, nil
	}
	tail := make([]byte, min(size, format.TailSize))
	if _, err := image.ReadAt(tail, size-int64(len(tail))); err != nil {
		return 0, err
	}
	opened, err := format.Open(format.Detect(head, tail, size), image, size)
	if err != nil {
		return 0, err
	}
	return opened.Size(), nil
}
