package guest

import (
	"fmt"
	"os"
	"syscall"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launch/rendezvous"
)

// plug is the way of a disk into the machine: the file, the block node on it, the device on that. What was done is undone
// if the next step is refused.
func (p *plugs) plug(disk kubevirt.Disk, o offer) (*plug, error) {
	if err := pluggable(disk); err != nil {
		return nil, err
	}
	p.count++
	made := &plug{id: fmt.Sprintf("hot%d", p.count), set: p.count, holder: o.holder}
	set := map[string]int{"fdset-id": made.set}
	if _, err := p.qemu.run("add-fd", set, o.file); err != nil {
		return nil, err
	}
	if _, err := p.qemu.run("blockdev-add", node(made, disk, o.Offer), nil); err != nil {
		_, _ = p.qemu.run("remove-fd", set, nil)
		return nil, err
	}
	device, err := p.device(made, disk)
	if err == nil {
		_, err = p.qemu.run("device_add", device, nil)
	}
	if err != nil {
		_, _ = p.qemu.run("blockdev-del", map[string]string{"node-name": made.id}, nil)
		_, _ = p.qemu.run("remove-fd", set, nil)
		return nil, err
	}
	return made, nil
}

// pluggable says which kinds of drive a running machine can get.
func pluggable(disk kubevirt.Disk) error {
	switch {
	case disk.LUN != nil:
		return fmt.Errorf("disk %q is a lun; a running machine can get disks only", disk.Name)
	case disk.CDRom != nil:
		return fmt.Errorf("disk %q is a CD drive; a running machine can get disks only", disk.Name)
	case bus(disk) != kubevirt.BusVirtio && bus(disk) != kubevirt.BusSCSI:
		return fmt.Errorf("disk %q has bus %s; a running machine can get disks on virtio and scsi only", disk.Name, bus(disk))
	}
	return nil
}

// node is the block node of a disk that was handed over.
func node(p *plug, disk kubevirt.Disk, o rendezvous.Offer) map[string]any {
	d := driver(disk, Backing{Device: o.Device})
	kind := map[bool]string{true: "host_device", false: "file"}[o.Device]
	direct := d.Cache == string(kubevirt.CacheNone)
	aio := map[bool]string{true: "native", false: "threads"}[direct && d.IO != "threads"]
	return map[string]any{
		"driver": "raw", "node-name": p.id, "read-only": o.ReadOnly, "discard": "unmap",
		"file": map[string]any{
			"driver": kind, "filename": fmt.Sprintf("/dev/fdset/%d", p.set), "read-only": o.ReadOnly, "discard": "unmap",
			"aio": aio, "cache": map[string]bool{"direct": direct, "no-flush": false},
		},
	}
}

func (p *plugs) device(made *plug, disk kubevirt.Disk) (map[string]any, error) {
	d := map[string]any{
		"id": made.id, "drive": made.id, "share-rw": on(disk.Shareable, false),
		"werror": "stop", "rerror": "stop", // as with the disks it started with
		"write-cache": map[bool]string{true: "off", false: "on"}[disk.Cache == kubevirt.CacheWriteThrough],
	}
	if disk.Serial != "" {
		d["serial"] = disk.Serial
	}
	if bus(disk) == kubevirt.BusSCSI {
		d["driver"], d["bus"] = "scsi-hd", "scsi0.0"
		return d, nil
	}
	port, err := p.qemu.freePort()
	d["driver"], d["bus"] = "virtio-blk-pci-non-transitional", port
	return d, err
}

// fileID tells two files or devices apart.
type fileID struct{ dev, ino, rdev uint64 }

// idOf is the identity of an open file. A device is known by its number: each pod has a node of its own for it.
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
