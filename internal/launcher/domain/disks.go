package domain

import (
	"fmt"
	"strconv"

	"k8s.io/utils/ptr"
	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
)

// attachDisks adds every disk of the machine. A volume without a disk of its name becomes a virtio disk: the machine lists the volume, so the
// guest gets it.
func attachDisks(d *libvirtxml.DomainDeviceList, m launcherapi.Machine, backings map[string]backing.Disk, queues uint) error {
	letters := map[string]int{}
	for _, disk := range Disks(m.Spec) {
		b, ok := backings[disk.Name]
		empty := !ok && disk.CDRom != nil
		if !ok && !empty {
			return fmt.Errorf("disk %q has no volume of that name; add one to volumes or remove the disk", disk.Name)
		}
		x, err := Disk(disk, b, queues)
		if err != nil {
			return err
		}
		if empty { // a CD drive without a medium
			x.Source, x.Driver.Type, x.Driver.Discard = nil, "raw", ""
		}
		prefix := BusPrefix(launcherapi.Bus(disk))
		x.Target.Dev = prefix + Letter(letters[prefix])
		letters[prefix]++
		d.Disks = append(d.Disks, x)
	}
	return nil
}

// Disks returns the machine's disks, and a disk for each volume that has none.
func Disks(spec kubevirt.VirtualMachineInstanceSpec) []kubevirt.Disk {
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

// Disk describes one disk device; queues is for a virtio disk. The caller sets its name on the bus.
func Disk(disk kubevirt.Disk, b backing.Disk, queues uint) (libvirtxml.DomainDisk, error) {
	x := libvirtxml.DomainDisk{
		Device: "disk",
		Driver: Driver(disk, b),
		Source: Source(disk.Name, b),
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
	if ptr.Deref(disk.Shareable, false) || b.Shared {
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

// below is the chain of masters under a copy. It is complete, so that libvirt does not look for masters in the headers of files.
func below(volume string, b *backing.Disk) *libvirtxml.DomainDiskBackingStore {
	x := &libvirtxml.DomainDiskBackingStore{Format: &libvirtxml.DomainDiskFormat{Type: b.Format}, Source: Source(volume, *b), BackingStore: noBacking()}
	if b.Master != nil {
		x.BackingStore = below(volume, b.Master)
	}
	return x
}

// Driver says how QEMU reads and writes a disk.
func Driver(disk kubevirt.Disk, b backing.Disk) *libvirtxml.DomainDiskDriver {
	d := &libvirtxml.DomainDiskDriver{Name: "qemu", Type: b.Format, Discard: "unmap"}
	if disk.Cache != "" {
		d.Cache = string(disk.Cache)
	} else if b.Device {
		d.Cache = string(kubevirt.CacheNone) // the node's page cache would hold what the guest caches already
	}
	if disk.IO != "" {
		d.IO = string(disk.IO)
	} else if d.Cache == string(kubevirt.CacheNone) {
		d.IO = "native" // asynchronous I/O needs O_DIRECT, which is what cache none means
	}
	if b.CopyOnRead {
		d.CopyOnRead = "on"
	}
	if disk.ErrorPolicy != nil {
		d.ErrorPolicy = string(*disk.ErrorPolicy)
	} else {
		d.ErrorPolicy = "stop" // a full or failing disk pauses the guest instead of corrupting it
	}
	return d
}

// Source says where a disk is.
func Source(volume string, b backing.Disk) *libvirtxml.DomainDiskSource {
	switch {
	case b.Remote != nil:
		return remoteSource(volume, b.Remote)
	case b.Device:
		return &libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: b.Path}}
	}
	x := &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: b.Path}}
	if b.Limit > 0 {
		x.Slices = &libvirtxml.DomainDiskSlices{Slices: []libvirtxml.DomainDiskSlice{{Type: "storage", Size: uint(b.Limit)}}}
	}
	return x
}

// BusPrefix begins the names of the disks on a bus.
func BusPrefix(b kubevirt.DiskBus) string {
	if b == kubevirt.BusVirtio {
		return "vd"
	}
	return "sd"
}

// Letter returns the name of the disk with this number, as the kernel names disks: a, b, ... z, aa, ab.
func Letter(n int) string {
	s := ""
	for n++; n > 0; n = (n - 1) / 26 {
		s = string(rune('a'+(n-1)%26)) + s
	}
	return s
}

// remoteSource describes a network disk to libvirt.
func remoteSource(volume string, r *backing.Remote) *libvirtxml.DomainDiskSource {
	protocol := netdisk.Of(r.Protocol)
	n := &libvirtxml.DomainDiskSourceNetwork{Protocol: r.Protocol, Name: r.Name}
	for _, s := range r.Servers {
		n.Hosts = append(n.Hosts, libvirtxml.DomainDiskSourceHost{Name: s.Host, Port: strconv.Itoa(s.Port)})
	}
	if r.Socket != "" {
		n.Hosts = []libvirtxml.DomainDiskSourceHost{{Transport: "unix", Socket: r.Socket}}
	}
	if r.User != "" {
		n.Auth = &libvirtxml.DomainDiskAuth{Username: r.User,
			Secret: &libvirtxml.DomainDiskSecret{Type: protocol.SecretType, Usage: backing.SecretUsage(volume)}}
	}
	if r.Initiator != "" {
		n.Initiator = &libvirtxml.DomainDiskSourceNetworkInitiator{IQN: &libvirtxml.DomainDiskSourceNetworkIQN{Name: r.Initiator}}
	}
	if r.Snapshot != "" {
		n.Snapshot = &libvirtxml.DomainDiskSourceNetworkSnapshot{Name: r.Snapshot}
	}
	if protocol.TLS {
		n.TLS, n.TLSHostname = yesNo(r.TLS), r.TLSName
	}
	if protocol.Reconnects {
		n.Reconnect = &libvirtxml.DomainDiskSourceNetworkReconnect{Delay: strconv.Itoa(netdisk.Reconnect)}
	}
	return &libvirtxml.DomainDiskSource{Network: n}
}

// noBacking tells libvirt, and libvirt tells QEMU, that a disk has no master, whatever its header says.
func noBacking() *libvirtxml.DomainDiskBackingStore { return &libvirtxml.DomainDiskBackingStore{} }

// Targets returns the names on the bus of a domain's disks, such as vda, by the disks' aliases.
func Targets(d *libvirtxml.Domain) map[string]string {
	out := map[string]string{}
	for _, disk := range d.Devices.Disks {
		if disk.Alias != nil && disk.Target != nil {
			out[disk.Alias.Name] = disk.Target.Dev
		}
	}
	return out
}
