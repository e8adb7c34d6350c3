package plug

import (
	"fmt"
	"slices"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/qmp"
)

// drives says which disks of a machine are CD drives.
func drives(spec kubevirt.VirtualMachineInstanceSpec) map[string]bool {
	out := map[string]bool{}
	for _, d := range spec.Domain.Devices.Disks {
		out[d.Name] = d.CDRom != nil
	}
	return out
}

// medium changes the medium in a CD drive. It returns libvirt's error if the guest has locked the tray.
func (a attached) medium(volume string, b *backing.Disk) error {
	now, _, err := a.g.Describe(0)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(now.Devices.Disks, func(d libvirtxml.DomainDisk) bool {
		return d.Device == "cdrom" && d.Alias != nil && d.Alias.Name == qmp.Device(volume)
	})
	if at < 0 {
		return fmt.Errorf("the machine has no CD drive %q", volume)
	}
	drive := now.Devices.Disks[at]
	if drive.Source == nil && b == nil {
		return nil
	}
	drive.Source, drive.BackingStore = nil, nil
	if b != nil {
		drive.Source = domain.Source(volume, *b)
	}
	text, err := drive.Marshal()
	if err != nil {
		return fmt.Errorf("describe the drive: %w", err)
	}
	if err := a.g.Libvirt.Virt.DomainUpdateDeviceFlags(a.g.Domain, text, libvirt.DomainDeviceModifyLive); err != nil {
		return fmt.Errorf("libvirt cannot change the medium: %w", err)
	}
	return nil
}
