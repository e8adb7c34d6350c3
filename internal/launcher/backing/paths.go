package backing

import (
	"path"
	"path/filepath"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// GeneratedFile is the path of a disk that the launcher generates, such as a cloud-init disk.
func GeneratedFile(volume string) string { return filepath.Join(launcherapi.StateDir, volume+".img") }

// ClaimFile is the path of the disk on a Filesystem claim.
func ClaimFile(volume string) string { return path.Join(launcherapi.FilesDir, volume, "disk.img") }

// ClaimDevice is the path of the device of a Block claim.
func ClaimDevice(volume string) string { return path.Join(launcherapi.BlockDir, volume) }

// CopyFile is the path of the copy of a volume, whatever its master is.
func CopyFile(volume string) string {
	return filepath.Join(launcherapi.CopiesDir, volume, "disk.qcow2")
}
