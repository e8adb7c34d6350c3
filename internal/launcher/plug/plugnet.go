package plug

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/handover"
	"github.com/berth-vm/berth/internal/launcher/remote"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/rendezvous"
)

var errNoLogin = errors.New("a network disk's holder hands over a login, and another's the disk; this is the other")

// attachNetwork adds a network disk and tells its holder, whose pod keeps the disk's claim and login mounted.
func (p *plugs) attachNetwork(disk kubevirt.Disk, added launcherapi.Added, o handover.Disk) {
	defer func() { _ = o.File.Close() }()
	text, err := json.Marshal(added)
	had, again := p.has[disk.Name]
	if err == nil && again && had.source == string(text) {
		had.holder = o.Holder
		_ = rendezvous.SendAnswer(o.Holder, rendezvous.Answer{Attached: true})
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
	made.source, made.holder = string(text), o.Holder
	p.network.Disks.SetDevice(disk.Name, made.id)
	p.has[disk.Name] = made
	p.log.Info("a disk was added to the guest", "volume", disk.Name)
	_ = rendezvous.SendAnswer(o.Holder, rendezvous.Answer{Attached: true})
}

// plugAdded opens a network disk and adds it.
func (p *plugs) plugAdded(disk kubevirt.Disk, added launcherapi.Added, o handover.Disk) (*plug, error) {
	b, l, err := p.network.Open(added, o.File)
	if err != nil {
		return nil, err
	}
	made, err := p.plugNetwork(disk, b, l)
	if err != nil {
		p.network.Close(disk.Name)
		return nil, remote.Classify(added.Machine(p.network.Machine), err)
	}
	return made, nil
}

// plugNetwork adds a network disk: its login, its block node, and a device on that. If QEMU refuses a step, the steps before are undone.
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
		n["backing"] = nil // it has no master, whatever its header says
	}
	return n
}
