package plug

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	libvirt "github.com/digitalocean/go-libvirt"
	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcher/handover"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// QEMU gets a disk that is handed over as a set of file descriptors, which it opens by a path below /dev/fdset. libvirt gets this path as the
// disk's, so that it treats the disk as any other and can move it. It requires that a file exists at the path, which may be empty.

// attacher changes the disks of a guest.
type attacher interface {
	attach(disk kubevirt.Disk, b backing.Disk) error
	// medium inserts a medium into a CD drive of the guest, or ejects the medium if b is nil.
	medium(volume string, b *backing.Disk) error
}

// firstSet is the first number of the sets of added disks. libvirt numbers its own sets from 0; those of kept copies have larger numbers.
const firstSet = 1 << 16

// setPath is the path at which QEMU opens a set.
func (p *plugs) setPath(set int) string { return filepath.Join(p.sets, strconv.Itoa(set)) }

var errOneFile = errors.New("its pod hands it over for writing alone, as earlier releases did: remove the volume and add it again")

// plug adds a disk that was handed over. If a step is refused, the steps before are undone.
func (p *plugs) plug(disk kubevirt.Disk, o handover.Disk) (*plug, error) {
	if err := launcherapi.Pluggable(disk); err != nil && !p.drives[disk.Name] {
		return nil, err
	}
	files := []*os.File{o.File}
	switch {
	case o.Reader != nil:
		files = append(files, o.Reader)
	case !o.ReadOnly:
		return nil, errOneFile
	}
	p.count++
	made := &plug{id: qmp.Device(disk.Name), set: firstSet + p.count, holder: o.Holder}
	var last struct { // of the files, as QEMU numbers it
		FD int `json:"fd"`
	}
	for _, f := range files {
		answer, err := p.qemu.RunWithFile("add-fd", fdset(made.set), f)
		if err == nil {
			err = json.Unmarshal(answer, &last)
		}
		if err != nil {
			p.forgetSet(made.set)
			return nil, err
		}
	}
	b := backing.Disk{Path: p.setPath(made.set), Device: o.Device, Format: "raw", ReadOnly: o.ReadOnly}
	err := os.WriteFile(b.Path, nil, 0o600)
	switch {
	case err != nil:
	case p.drives[disk.Name]:
		err = p.domain.medium(disk.Name, &b)
	default:
		err = p.domain.attach(disk, b)
	}
	if err == nil && o.Reader != nil {
		if err = p.settleWriter(made, disk, b, o.Reader, last.FD); err != nil {
			_, _ = p.qemu.Run("device_del", map[string]string{"id": made.id})
		}
	}
	if err != nil {
		p.forgetSet(made.set)
		return nil, err
	}
	if o.Reader != nil {
		made.measure = backing.Duplicate(o.Reader)
	}
	return made, nil
}

// settleWriter has QEMU stay with the file that it writes to. libvirt makes it open a disk for reading, and change to the other
// file at the first write; the locks on the first would remain, and QEMU, which takes them for another program's when it checks
// them next, ends.
func (p *plugs) settleWriter(made *plug, disk kubevirt.Disk, b backing.Disk, reader *os.File, fd int) error {
	free := unix.Flock_t{Type: unix.F_UNLCK}
	if err := unix.FcntlFlock(reader.Fd(), unix.F_OFD_SETLK, &free); err != nil {
		return fmt.Errorf("free the locks of a file: %w", err)
	}
	node, err := p.qemu.NodeOf(b.Path)
	if err != nil {
		return err
	}
	d := domain.Driver(disk, b)
	options := map[string]any{"driver": map[bool]string{true: "host_device", false: "file"}[b.Device], "node-name": node, "filename": b.Path,
		"read-only": false, "auto-read-only": false, "discard": "unmap"}
	if d.Cache != "" {
		direct := d.Cache == string(kubevirt.CacheNone) || d.Cache == "directsync"
		options["cache"] = map[string]bool{"direct": direct, "no-flush": d.Cache == "unsafe"}
	}
	if d.IO != "" {
		options["aio"] = d.IO
	}
	if _, err := p.qemu.Run("blockdev-reopen", map[string]any{"options": []any{options}}); err != nil {
		return err
	}
	_, err = p.qemu.Run("remove-fd", map[string]int{"fdset-id": made.set, "fd": fd})
	return err
}

func fdset(set int) map[string]int { return map[string]int{"fdset-id": set} }

func (p *plugs) forgetSet(set int) {
	_, _ = p.qemu.Run("remove-fd", fdset(set)) // QEMU frees the set when it closes the disk
	_ = os.Remove(p.setPath(set))
}

// closed reports whether QEMU has closed a disk that the guest has released. libvirt closes the disks that it knows; closed closes network disks.
func (p *plugs) closed(volume string, plug *plug) (bool, error) {
	if plug.source != "" || plug.set == 0 {
		return true, p.closeNetwork(volume, plug)
	}
	p.forgetSet(plug.set)
	answer, err := p.qemu.Run("query-fdsets", nil)
	if err != nil {
		return false, err
	}
	var sets []struct {
		ID int `json:"fdset-id"`
	}
	if err := json.Unmarshal(answer, &sets); err != nil {
		return false, fmt.Errorf("read QEMU's list of files: %w", err)
	}
	for _, s := range sets {
		if s.ID == plug.set {
			return false, nil
		}
	}
	return true, nil
}

// closeNetwork closes a network disk that the guest has released.
func (p *plugs) closeNetwork(volume string, plug *plug) error {
	_, err := p.qemu.Run("blockdev-del", map[string]string{"node-name": plug.id})
	if err == nil && plug.certificates != "" {
		_, err = p.qemu.Run("object-del", map[string]string{"id": plug.certificates})
	}
	if plug.source != "" {
		p.network.Close(volume)
	}
	return err
}

// attached changes the disks of a guest in libvirt.
type attached struct {
	g      guest.Guest
	queues uint // of a virtio disk
}

// attach adds a disk under the first name that is free on its bus.
func (a attached) attach(disk kubevirt.Disk, b backing.Disk) error {
	now, _, err := a.g.Describe(0)
	if err != nil {
		return err
	}
	disk.BootOrder = nil // it counts at the next start
	x, err := domain.Disk(disk, b, a.queues)
	if err != nil {
		return err
	}
	taken := domain.Targets(now)
	used := slices.Collect(maps.Values(taken))
	for n := 0; x.Target.Dev == ""; n++ {
		if name := domain.BusPrefix(launcherapi.Bus(disk)) + domain.Letter(n); !slices.Contains(used, name) {
			x.Target.Dev = name
		}
	}
	text, err := x.Marshal()
	if err != nil {
		return fmt.Errorf("describe the disk: %w", err)
	}
	if err := a.g.Libvirt.Virt.DomainAttachDeviceFlags(a.g.Domain, text, uint32(libvirt.DomainDeviceModifyLive)); err != nil {
		return fmt.Errorf("libvirt refuses the disk: %w", err)
	}
	return nil
}

// device describes the device of a network disk to QEMU.
func (p *plugs) device(made *plug, disk kubevirt.Disk) (map[string]any, error) {
	d := map[string]any{
		"id": made.id, "drive": made.id, "share-rw": ptr.Deref(disk.Shareable, false),
		"werror": "stop", "rerror": "stop", // as with the disks it started with
		"write-cache": map[bool]string{true: "off", false: "on"}[disk.Cache == kubevirt.CacheWriteThrough],
	}
	if disk.Serial != "" {
		d["serial"] = disk.Serial
	}
	if launcherapi.Bus(disk) == kubevirt.BusSCSI {
		d["driver"], d["bus"] = "scsi-hd", "scsi0.0"
		return d, nil
	}
	port, err := p.qemu.FreePort()
	d["driver"], d["bus"] = "virtio-blk-pci-non-transitional", port
	return d, err
}

// fileID identifies a file or a device.
type fileID struct{ dev, ino, rdev uint64 }

// idOf returns the identity of an open file. A device is identified by its number, because each pod has a device node of its own.
func idOf(f *os.File) (fileID, error) {
	info, err := f.Stat()
	if err != nil {
		return fileID{}, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, fmt.Errorf("%s has no identity", f.Name())
	}
	if info.Mode()&os.ModeDevice != 0 {
		return fileID{rdev: s.Rdev}, nil
	}
	return fileID{dev: s.Dev, ino: s.Ino}, nil
}
