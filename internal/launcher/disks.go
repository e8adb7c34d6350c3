package launcher

import (
	"fmt"

	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// attachDisks puts every disk of the machine on its bus. A volume without a disk of its name is attached as a virtio
// disk: the machine asked for the volume, so it is to see it.
func attachDisks(d *libvirtxml.DomainDeviceList, m launcherapi.Machine, backings map[string]Backing, queues uint) error {
	letters := map[string]int{}
	for _, disk := range allDisks(m.Spec) {
		b, ok := backings[disk.Name]
		empty := !ok && disk.CDRom != nil
		if !ok && !empty {
			return fmt.Errorf("disk %q has no volume of that name; add one to volumes or remove the disk", disk.Name)
		}
		x, err := DiskXML(disk, b, queues)
		if err != nil {
			return err
		}
		if empty { // a CD drive may be
			x.Source, x.Driver.Type, x.Driver.Discard = nil, "raw", ""
		}
		prefix := devicePrefix(launcherapi.Bus(disk))
		x.Target.Dev = prefix + letter(letters[prefix])
		letters[prefix]++
		d.Disks = append(d.Disks, x)
	}
	return nil
}

// allDisks is the machine's disks and one for each volume that has none.
func allDisks(spec kubevirt.VirtualMachineInstanceSpec) []kubevirt.Disk {
	disks := append([]kubevirt.Disk(nil), spec.Domain.Devices.Disks...)
	named := map[string]bool{}
	for _, d := range disks {
		named[d.Name] = true
	}
	for _, v := range spec.Volumes {
		if !named[v.Name] {
			disks = append(disks, kubevirt.Disk{Name: v.Name})
		}
	}
	return disks
}

// DiskXML is one disk device, with that many queues if it is a virtio one. The caller gives it its name on the bus.
func DiskXML(disk kubevirt.Disk, b Backing, queues uint) (libvirtxml.DomainDisk, error) {
	x := libvirtxml.DomainDisk{
		Device: "disk",
		Driver: driver(disk, b),
		Source: source(disk.Name, b),
		Target: &libvirtxml.DomainDiskTarget{Bus: string(launcherapi.Bus(disk))},
		Serial: disk.Serial,
		Alias:  &libvirtxml.DomainAlias{Name: qmp.Device(disk.Name)},
	}
	switch {
	case disk.LUN != nil:
		if !b.Device {
			return x, fmt.Errorf("disk %q is a lun, which needs a Block volume", disk.Name)
		}
		x.Device = "lun"
	case disk.CDRom != nil:
		x.Device = "cdrom"
		if disk.CDRom.Tray == kubevirt.TrayOpen {
			x.Target.Tray = "open"
		}
	}
	if s := disk.BlockSize; s != nil && s.Custom != nil {
		x.BlockIO = &libvirtxml.DomainDiskBlockIO{LogicalBlockSize: s.Custom.Logical, PhysicalBlockSize: s.Custom.Physical, DiscardGranularity: s.Custom.DiscardGranularity}
	}
	switch {
	case b.Master != nil:
		x.BackingStore = below(disk.Name, b.Master)
	case b.Remote != nil || b.Copied:
		x.BackingStore = noBacking()
	}
	if disk.ReadsOnly() || b.ReadOnly {
		x.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	}
	if on(disk.Shareable, false) || b.Shared {
		x.Shareable = &libvirtxml.DomainDiskShareable{}
	}
	if disk.BootOrder != nil {
		x.Boot = &libvirtxml.DomainDeviceBoot{Order: *disk.BootOrder}
	}
	if launcherapi.Bus(disk) == kubevirt.BusVirtio {
		x.Model = "virtio-non-transitional"
		x.Driver.Queues = &queues
	}
	return x, nil
}

// below is what a copy lies over. All of it is said: libvirt is to look for nothing in files.
func below(volume string, b *Backing) *libvirtxml.DomainDiskBackingStore {
	x := &libvirtxml.DomainDiskBackingStore{Format: &libvirtxml.DomainDiskFormat{Type: b.Format}, Source: source(volume, *b), BackingStore: noBacking()}
	if b.Master != nil {
		x.BackingStore = below(volume, b.Master)
	}
	return x
}

func driver(disk kubevirt.Disk, b Backing) *libvirtxml.DomainDiskDriver {
	d := &libvirtxml.DomainDiskDriver{Name: "qemu", Type: b.Format, Discard: "unmap"}
	if disk.Cache != "" {
		d.Cache = string(disk.Cache)
	} else if b.Device {
		d.Cache = string(kubevirt.CacheNone) // the device has no page cache worth doubling
	}
	if disk.IO != "" {
		d.IO = string(disk.IO)
	} else if d.Cache == string(kubevirt.CacheNone) {
		d.IO = "native" // asynchronous I/O needs O_DIRECT, which is what cache none means
	}
	if b.Keeps {
		d.CopyOnRead = "on"
	}
	if disk.ErrorPolicy != nil {
		d.ErrorPolicy = string(*disk.ErrorPolicy)
	} else {
		d.ErrorPolicy = "stop" // a full or failing disk pauses the guest instead of corrupting it
	}
	return d
}

func source(volume string, b Backing) *libvirtxml.DomainDiskSource {
	switch {
	case b.Remote != nil:
		return b.Remote.source(volume)
	case b.Device:
		return &libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: b.Path}}
	}
	x := &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: b.Path}}
	if b.Limit > 0 {
		x.Slices = &libvirtxml.DomainDiskSlices{Slices: []libvirtxml.DomainDiskSlice{{Type: "storage", Size: uint(b.Limit)}}}
	}
	return x
}

func devicePrefix(b kubevirt.DiskBus) string {
	if b == kubevirt.BusVirtio {
		return "vd"
	}
	return "sd"
}

// letter counts a, b, ... z, aa, ab, as the kernel does.
func letter(n int) string {
	s := ""
	for n++; n > 0; n = (n - 1) / 26 {
		s = string(rune('a'+(n-1)%26)) + s
	}
	return s
}
