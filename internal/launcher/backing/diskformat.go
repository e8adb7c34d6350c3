package backing

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/berth-vm/berth/internal/transfer/format"
)

// DetectFormat returns the format of an image that is not trusted, qcow2 or raw. It returns an error for a qcow2 that refers to another
// file, which QEMU would open. Every other format counts as raw: QEMU is told the format and never guesses it.
func DetectFormat(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	head := make([]byte, format.HeadSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the image: %w", err)
	}
	if format.Detect(head[:n], nil, info.Size()) != format.QCOW2 {
		return "raw", nil
	}
	if _, err := format.Open(format.QCOW2, f, info.Size()); err != nil {
		return "", fmt.Errorf("the image in the container: %w", err)
	}
	return "qcow2", nil
}
