package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/transfer/source/httpaccess"
)

// readLogin reads the login of a volume from its mounted Secret; nil if it needs none. The login goes to libvirt over its socket. It is never
// written to a file, a command line or a message.
func readLogin(v kubevirt.Volume, mounted string) (*netdisk.Login, error) {
	dir := filepath.Join(mounted, netdisk.CredentialsDir)
	l, err := netdisk.ReadLogin(v.NetworkSource, func(key string) (string, error) { return httpaccess.ReadFile(dir, key) })
	if unsupported := netdisk.UnsupportedError(""); errors.As(err, &unsupported) {
		return nil, &Error{launcherapi.DiskUnsupported, err}
	}
	return l, err
}

// tlsDir is the directory where QEMU reads the certificates for NBD.
var tlsDir = filepath.Join(launcherapi.StateDir, "nbd-tls")

// certificates links the files of a mounted Secret under the names that QEMU expects, in dir, and returns whether there are any. libvirt has
// one such directory for all NBD disks of a machine, so these have one Secret.
func certificates(m launcherapi.Machine, dir string) (found bool, err error) {
	first := ""
	for _, v := range m.Spec.Volumes {
		name := netdisk.Certificates(v.NetworkSource)
		if name == "" {
			continue
		}
		if first != "" && name != first {
			return false, fmt.Errorf("volume %s has its certificates in Secret %s and another volume in %s; the NBD disks of a machine have one Secret",
				v.Name, name, first)
		}
		if first == name {
			continue
		}
		first = name
		if err := nameCertificates(v, filepath.Join(launcherapi.MountDir, v.Name, netdisk.CredentialsDir), dir); err != nil {
			return false, err
		}
	}
	return first != "", nil
}

// nameCertificates links the files of a volume's Secret under the names that QEMU expects.
func nameCertificates(v kubevirt.Volume, from, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a directory for certificates: %w", err)
	}
	for key, file := range map[string]string{"ca.crt": "ca-cert.pem", "tls.crt": "client-cert.pem", "tls.key": "client-key.pem"} {
		_, err := os.Stat(filepath.Join(from, key))
		switch {
		case errors.Is(err, fs.ErrNotExist) && key != "ca.crt":
			continue
		case err != nil:
			return fmt.Errorf("the certificates of volume %s need %s in Secret %s: %w", v.Name, key, netdisk.Certificates(v.NetworkSource), err)
		}
		if err := os.Symlink(filepath.Join(from, key), filepath.Join(dir, file)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("name the certificates of volume %s: %w", v.Name, err)
		}
	}
	return nil
}
