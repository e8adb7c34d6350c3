// Package guest describes the test guest for tests: which files the builder makes of its disk, what they hold, and where on the
// disk a test may write. The files are made by hack/images; the program that runs inside is in init.
package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The raw disk: its size, and the area that belongs to tests, which the guest itself calls "data".
const (
	DiskSize   = 256 << 20
	DataOffset = 64 << 20
	DataSize   = 191 << 20
)

// Files of the guest in the folder that hack/images writes to. All but the kernel and the initramfs hold the same disk.
const (
	Raw             = "guest.img"
	QCOW2           = "guest.qcow2"
	QCOW2Compressed = "guest-compressed.qcow2"
	Gzip            = "guest.img.gz"
	XZ              = "guest.img.xz"
	Zstd            = "guest.img.zst"
	Kernel          = "vmlinuz"
	Initramfs       = "initrd"
)

const manifestFile = "manifest.json"

// Manifest describes one build of the guest.
type Manifest struct {
	Inputs        string          `json:"inputs"` // a digest of all that the files were made from
	KernelVersion string          `json:"kernelVersion"`
	Files         map[string]File `json:"files"` // by the names above
}

// File is one file of the guest.
type File struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// ReadManifest reads the manifest in the folder of the guest's files.
func ReadManifest(dir string) (Manifest, error) {
	var m Manifest
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return m, fmt.Errorf("read the test guest's manifest (make images builds the guest): %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("read the test guest's manifest: %w", err)
	}
	return m, nil
}

// RemoveManifest makes the files in dir a guest of no known build. It is no error if there is none.
func RemoveManifest(dir string) error {
	if err := os.Remove(filepath.Join(dir, manifestFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the test guest's manifest: %w", err)
	}
	return nil
}

// Write writes the manifest into the folder of the guest's files.
func (m Manifest) Write(dir string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write the test guest's manifest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, manifestFile), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the test guest's manifest: %w", err)
	}
	return nil
}
