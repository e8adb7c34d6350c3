package launcher

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/rendezvous"
)

// loginsDir is where the Secrets of added disks are kept: in memory, as the kubelet keeps those of the disks from the start.
const loginsDir = "/dev/shm/berth-disks"

// opening is how long a server may take to let an added disk be opened, before the guest is troubled with it.
const opening = 20 * time.Second

// network opens network disks for a guest that runs.
type network struct {
	remotes *remotes
	machine launcherapi.Machine
	dir     string // for logins
	// probe opens the disk once beside the guest.
	probe func(ctx context.Context, m launcherapi.Machine, b backing.Disk, l *netdisk.Login) error
}

func newNetwork(r *remotes, m launcherapi.Machine) *network {
	return &network{remotes: r, machine: m, dir: loginsDir, probe: r.probe}
}

// probe opens a disk with a program of its own: QEMU's monitor waits for the server while it opens a disk, and so does the
// guest.
func (r *remotes) probe(ctx context.Context, m launcherapi.Machine, b backing.Disk, l *netdisk.Login) error {
	node, err := json.Marshal(map[string]any{"driver": "raw", "read-only": true, "file": b.Remote.Node(backing.SecretObject, backing.TlsObject(b.Remote))})
	if err != nil {
		return fmt.Errorf("describe the disk: %w", err)
	}
	return r.program(ctx, m, b.Remote, l, nil, "qemu-img", "info", "-U", "json:"+string(node))
}

// open makes an added disk something that QEMU can open. The file is what its holder handed over.
func (n *network) open(added launcherapi.Added, file *os.File) (b backing.Disk, l *netdisk.Login, err error) {
	v := added.Volume
	if v.Copied() != nil {
		return b, nil, errors.New("a copy is made when a machine starts; this one runs")
	}
	dir := filepath.Join(n.dir, v.Name)
	n.drop(v.Name) // of an earlier try
	n.remotes.dirs[v.Name] = dir
	defer func() {
		if err != nil {
			n.drop(v.Name)
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
	ctx, cancel := context.WithTimeout(context.Background(), opening)
	defer cancel()
	m := added.Machine(n.machine)
	if b, err = n.remotes.backing(ctx, m, v); err != nil {
		return b, nil, err
	}
	b.Shared = v.AccessMode == kubevirt.WriteShared
	l = n.remotes.logins[v.Name]
	return b, l, n.probe(ctx, m, b, l)
}

// own opens a network disk that the machine was started with once more; ok says whether it was.
func (n *network) own(volume string) (disk kubevirt.Disk, b backing.Disk, l *netdisk.Login, ok bool, err error) {
	if n == nil {
		return disk, b, nil, false, nil
	}
	at := slices.IndexFunc(n.machine.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Name == volume && v.Networked() && v.Copied() == nil })
	if at < 0 {
		return disk, b, nil, false, nil
	}
	for _, d := range domain.Disks(n.machine.Spec) {
		if d.Name == volume {
			disk = d
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), opening)
	defer cancel()
	b, err = n.remotes.backing(ctx, n.machine, n.machine.Spec.Volumes[at])
	b.Shared = n.machine.Spec.Volumes[at].AccessMode == kubevirt.WriteShared
	return disk, b, n.remotes.logins[volume], true, err
}

// device notes what QEMU calls the device of a disk that was added.
func (r *remotes) device(volume, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.opened[volume]; at != nil {
		c := *at // others have this one
		c.Device = id
		r.opened[volume] = &c
	}
}

// drop forgets a disk that was added.
func (n *network) drop(volume string) {
	dir, ok := n.remotes.dirs[volume]
	if !ok {
		return
	}
	for _, end := range n.remotes.added[volume] {
		end()
	}
	n.remotes.mu.Lock()
	delete(n.remotes.opened, volume)
	n.remotes.mu.Unlock()
	delete(n.remotes.added, volume)
	delete(n.remotes.logins, volume)
	delete(n.remotes.dirs, volume)
	_ = os.RemoveAll(dir)
}

var errNoLogin = errors.New("a network disk's holder hands over a login, and another's the disk; this is the other")

// attachNetwork gives the guest a network disk and tells the holder, whose pod keeps its claim and its login.
func (p *plugs) attachNetwork(disk kubevirt.Disk, added launcherapi.Added, o offer) {
	defer func() { _ = o.file.Close() }()
	text, err := json.Marshal(added)
	had, again := p.has[disk.Name]
	if err == nil && again && had.source == string(text) {
		had.holder = o.holder
		_ = rendezvous.SendAnswer(o.holder, rendezvous.Answer{Attached: true})
		return
	}
	var made *plug
	switch {
	case err != nil:
	case again:
		err = errAnotherFile
	case !o.Login:
		err = errNoLogin
	default:
		made, err = p.plugAdded(disk, added, o)
	}
	if err != nil {
		p.refuse(disk.Name, o, err)
		return
	}
	made.source, made.holder = string(text), o.holder
	p.network.remotes.device(disk.Name, made.id)
	p.has[disk.Name] = made
	p.log.Info("the guest was given a disk", "volume", disk.Name)
	_ = rendezvous.SendAnswer(o.holder, rendezvous.Answer{Attached: true})
}

func (p *plugs) plugAdded(disk kubevirt.Disk, added launcherapi.Added, o offer) (*plug, error) {
	b, l, err := p.network.open(added, o.file)
	if err != nil {
		return nil, err
	}
	made, err := p.plugNetwork(disk, b, l)
	if err != nil {
		p.network.drop(disk.Name)
		return nil, serverFault(added.Machine(p.network.machine), err)
	}
	return made, nil
}

// plugNetwork is the way of a network disk into the machine: what it logs in with, the block node, the device on that. What
// was done is undone if the next step is refused.
func (p *plugs) plugNetwork(disk kubevirt.Disk, b backing.Disk, l *netdisk.Login) (made *plug, err error) {
	if err := launcherapi.Pluggable(disk); err != nil {
		return nil, err
	}
	p.count++
	made = &plug{id: fmt.Sprintf("hot%d", p.count)}
	var undo []func()
	defer func() {
		for _, u := range slices.Backward(undo) {
			if err != nil {
				u()
			}
		}
	}()
	object := func(id string) map[string]string { return map[string]string{"id": id} }
	secret := ""
	if l != nil {
		secret = made.id + "-login"
		if _, err := p.qemu.Run("object-add", map[string]string{"qom-type": "secret", "id": secret, "format": "base64",
			"data": base64.StdEncoding.EncodeToString(l.Value)}); err != nil {
			return nil, err
		}
		defer func() { _, _ = p.qemu.Run("object-del", object(secret)) }() // it is read when the disk is opened
	}
	if b.Remote.TLS {
		made.certificates = made.id + "-tls"
		if _, err := p.qemu.Run("object-add", map[string]any{"qom-type": "tls-creds-x509", "id": made.certificates, "endpoint": "client",
			"verify-peer": true, "dir": b.Remote.TLSDir}); err != nil {
			return nil, err
		}
		undo = append(undo, func() { _, _ = p.qemu.Run("object-del", object(made.certificates)) })
	}
	if _, err := p.qemu.Run("blockdev-add", networkNode(made, disk, b, secret)); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _, _ = p.qemu.Run("blockdev-del", map[string]string{"node-name": made.id}) })
	device, err := p.device(made, disk)
	if err != nil {
		return nil, err
	}
	device["share-rw"] = ptr.Deref(disk.Shareable, false) || b.Shared
	_, err = p.qemu.Run("device_add", device)
	return made, err
}

// networkNode is the block node of an added network disk.
func networkNode(p *plug, disk kubevirt.Disk, b backing.Disk, secret string) map[string]any {
	readOnly := b.ReadOnly || disk.ReadsOnly()
	file := b.Remote.Node(secret, p.certificates)
	file["read-only"], file["discard"] = readOnly, "unmap"
	n := map[string]any{"driver": b.Format, "node-name": p.id, "read-only": readOnly, "discard": "unmap", "file": file}
	if b.Format != string(kubevirt.FormatRaw) {
		n["backing"] = nil // it lies over nothing, whatever its header says
	}
	return n
}
