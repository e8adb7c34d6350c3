package launcher

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

// readLogin reads the login of a volume under the directory of its mounts; nil if it needs none. It is given to libvirt over its
// socket, and is in no file of ours, no command line and no message.
func readLogin(v kubevirt.Volume, mounted string) (*netdisk.Login, error) {
	dir := filepath.Join(mounted, netdisk.CredentialsDir)
	l, err := netdisk.ReadLogin(v.NetworkSource, func(key string) (string, error) { return httpaccess.ReadFile(dir, key) })
	if unsupported := netdisk.UnsupportedError(""); errors.As(err, &unsupported) {
		return nil, &faulty{launcherapi.DiskUnsupported, err}
	}
	return l, err
}

// tlsDir is where QEMU finds the certificates for NBD.
var tlsDir = filepath.Join(launcherapi.StateDir, "nbd-tls")

// certificates names the files of a mounted Secret as QEMU wants them. libvirt knows one directory for all NBD disks of a
// machine, so they have one Secret.
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

// nameCertificates gives the files of a Secret the names that QEMU looks for.
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
