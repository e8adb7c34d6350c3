package remote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/rendezvous"
)

// loginsDir has the Secrets of disks that are added to a running guest. It is in memory, as the kubelet's directories with Secrets are.
const loginsDir = "/dev/shm/berth-disks"

// openTimeout is how long a server may take to open a disk before QEMU is told to open it.
const openTimeout = 20 * time.Second

// Added opens network disks for a running guest.
type Added struct {
	Disks   *Disks
	Machine launcherapi.Machine
	Dir     string // for logins
	// probe opens a disk and closes it; tests replace it.
	Probe func(ctx context.Context, m launcherapi.Machine, b backing.Disk, l *netdisk.Login) error
}

// NewAdded returns what opens further disks for a machine.
func NewAdded(r *Disks, m launcherapi.Machine) *Added {
	return &Added{Disks: r, Machine: m, Dir: loginsDir, Probe: r.probe}
}

// Open prepares a disk that is added to the guest. The file has its login, as its holder hands it over. If it fails nothing of the
// disk is left.
func (n *Added) Open(added launcherapi.Added, file *os.File) (b backing.Disk, l *netdisk.Login, err error) {
	v := added.Volume
	if v.Copied() != nil {
		return b, nil, errors.New("a copy is made when a machine starts; this one runs")
	}
	dir := filepath.Join(n.Dir, v.Name)
	n.Close(v.Name) // what an earlier try left
	n.Disks.dirs[v.Name] = dir
	defer func() {
		if err != nil {
			n.Close(v.Name)
		}
	}()
	if err = rendezvous.UnpackLogin(file, dir); err != nil {
		return b, nil, err
	}
	if netdisk.Certificates(v.NetworkSource) != "" {
		if err = nameCertificates(v, filepath.Join(dir, netdisk.CredentialsDir), filepath.Join(dir, "tls")); err != nil {
			return b, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	m := added.Machine(n.Machine)
	if b, err = n.Disks.Open(ctx, m, v); err != nil {
		return b, nil, err
	}
	b.Shared = v.AccessMode == kubevirt.WriteShared
	l = n.Disks.logins[v.Name]
	return b, l, n.Probe(ctx, m, b, l)
}

// Reopen opens a network disk again that the machine was started with; ok is false if the volume is not such a disk.
func (n *Added) Reopen(volume string) (disk kubevirt.Disk, b backing.Disk, l *netdisk.Login, ok bool, err error) {
	if n == nil {
		return disk, b, nil, false, nil
	}
	at := slices.IndexFunc(n.Machine.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Name == volume && v.Networked() && v.Copied() == nil })
	if at < 0 {
		return disk, b, nil, false, nil
	}
	for _, d := range domain.Disks(n.Machine.Spec) {
		if d.Name == volume {
			disk = d
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	b, err = n.Disks.Open(ctx, n.Machine, n.Machine.Spec.Volumes[at])
	b.Shared = n.Machine.Spec.Volumes[at].AccessMode == kubevirt.WriteShared
	return disk, b, n.Disks.logins[volume], true, err
}

// Close ends what serves a disk that was added, and removes its login.
func (n *Added) Close(volume string) {
	dir, ok := n.Disks.dirs[volume]
	if !ok {
		return
	}
	for _, end := range n.Disks.added[volume] {
		end()
	}
	n.Disks.mu.Lock()
	delete(n.Disks.opened, volume)
	n.Disks.mu.Unlock()
	delete(n.Disks.added, volume)
	delete(n.Disks.logins, volume)
	delete(n.Disks.dirs, volume)
	_ = os.RemoveAll(dir)
}
