package guest

import (
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/transfer/source/access"
)

// login is what a network disk's server wants to know. It is read from a mounted Secret and given to libvirt over its
// socket; it is in no file of ours, no command line and no message.
type login struct {
	user  string
	value []byte
}

// readLogin reads the login of a volume under the directory of its mounts. Nil: it needs none.
func readLogin(v kubevirt.Volume, mounted string) (*login, error) {
	dir := filepath.Join(mounted, launch.CredentialsMount)
	switch {
	case v.ISCSI != nil && v.ISCSI.SecretRef != nil:
		for _, key := range []string{launch.CHAPUserBack, launch.CHAPPasswordBack} {
			if _, err := os.Stat(filepath.Join(dir, key)); err == nil {
				return nil, &faulty{launch.DiskUnsupported, fmt.Errorf("Secret %s has %s, which asks for mutual CHAP, and QEMU's iSCSI client cannot check its target: "+ //nolint:staticcheck // a kind's name is written with a capital
					"take the keys that end in _in out of the Secret and let the target do without, or mount the volume", v.ISCSI.SecretRef.Name, key)}
			}
		}
		user, err := access.ReadFile(dir, launch.CHAPUser)
		if err != nil {
			return nil, missingKey(v.ISCSI.SecretRef.Name, err, launch.CHAPUser, launch.CHAPPassword)
		}
		password, err := access.ReadFile(dir, launch.CHAPPassword)
		if err != nil {
			return nil, missingKey(v.ISCSI.SecretRef.Name, err, launch.CHAPUser, launch.CHAPPassword)
		}
		return &login{user, []byte(password)}, nil
	case v.RBD != nil && v.RBD.SecretRef != nil:
		name := launch.CephKey
		text, err := access.ReadFile(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			name = launch.CephUserKey
			text, err = access.ReadFile(dir, name)
		}
		if err != nil {
			return nil, missingKey(v.RBD.SecretRef.Name, err, launch.CephKey, launch.CephUserKey)
		}
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil { // not its words: they may quote the key
			return nil, fmt.Errorf("%s of Secret %s is no key of Ceph's: it must be the base64 text that ceph auth get-key prints",
				name, v.RBD.SecretRef.Name)
		}
		user := v.RBD.User
		if user == "" {
			if user, err = access.ReadFile(dir, launch.CephUser); err != nil { // Secrets of ceph-csi name the user too
				user = "admin"
			}
		}
		return &login{user, key}, nil
	}
	return nil, nil
}

func missingKey(secret string, err error, keys ...string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("Secret %s has no %s and %s, which the disk's server wants: %w", secret, keys[0], keys[1], fs.ErrNotExist) //nolint:staticcheck // a kind's name is written with a capital
	}
	return err
}

// keep gives libvirt a volume's secret. It stays in libvirtd's memory and can be used by it alone.
func (h *hypervisor) keep(volume string, r *Remote, l *login) error {
	type usage struct {
		Type   string `xml:"type,attr"`
		Target string `xml:"target,omitempty"` // iSCSI's word
		Name   string `xml:"name,omitempty"`   // Ceph's word
	}
	doc := struct {
		XMLName   xml.Name `xml:"secret"`
		Ephemeral string   `xml:"ephemeral,attr"`
		Private   string   `xml:"private,attr"`
		Usage     usage    `xml:"usage"`
	}{Ephemeral: "yes", Private: "yes", Usage: usage{Type: r.secretType()}}
	if r.Protocol == "rbd" {
		doc.Usage.Name = secretUsage(volume)
	} else {
		doc.Usage.Target = secretUsage(volume)
	}
	text, err := xml.Marshal(doc)
	if err != nil {
		return fmt.Errorf("describe the secret of volume %s: %w", volume, err)
	}
	made, err := h.virt.SecretDefineXML(string(text), 0)
	if err != nil {
		return fmt.Errorf("give libvirt the secret of volume %s: %w", volume, err)
	}
	if err := h.virt.SecretSetValue(libvirt.Secret(made), l.value, 0); err != nil {
		return fmt.Errorf("give libvirt the secret of volume %s: %w", volume, err)
	}
	return nil
}

// tlsDir is where QEMU finds the certificates for NBD.
var tlsDir = filepath.Join(launch.StateDir, "nbd-tls")

// certificates names the files of a mounted Secret as QEMU wants them. libvirt knows one directory for all NBD disks of a
// machine, so they have one Secret.
func certificates(m launch.Machine, dir string) (found bool, err error) {
	first := ""
	for _, v := range m.Spec.Volumes {
		if v.NBD == nil || v.NBD.TLS == nil {
			continue
		}
		name := v.NBD.TLS.SecretRef.Name
		if first != "" && name != first {
			return false, fmt.Errorf("volume %s has its certificates in Secret %s and another volume in %s; the NBD disks of a machine have one Secret",
				v.Name, name, first)
		}
		if first == name {
			continue
		}
		first = name
		if err := nameCertificates(v, filepath.Join(launch.MountDir, v.Name, launch.CredentialsMount), dir); err != nil {
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
			return fmt.Errorf("the certificates of volume %s need %s in Secret %s: %w", v.Name, key, v.NBD.TLS.SecretRef.Name, err)
		}
		if err := os.Symlink(filepath.Join(from, key), filepath.Join(dir, file)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("name the certificates of volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// noBacking tells libvirt, and it QEMU, that a disk lies over nothing, whatever its header says.
func noBacking() *libvirtxml.DomainDiskBackingStore { return &libvirtxml.DomainDiskBackingStore{} }
