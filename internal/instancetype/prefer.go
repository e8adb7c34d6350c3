package instancetype

import (
	"slices"

	"k8s.io/utils/ptr"
	"kubevirt.io/api/instancetype/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// prefer fills in what the machine leaves open. What a machine says is never changed: a preference is no order.
func prefer(spec *kubevirt.VirtualMachineInstanceSpec, p *Preference) {
	if d := p.Devices; d != nil {
		preferDevices(spec, d)
	}
	if p.Firmware != nil {
		preferFirmware(&spec.Domain, p.Firmware)
	}
	preferHardware(&spec.Domain, p)
	if m := p.Machine; m != nil && m.PreferredMachineType != "" && spec.Domain.Machine == nil {
		spec.Domain.Machine = &kubevirt.Machine{Type: m.PreferredMachineType}
	}
	fill(&spec.TerminationGracePeriodSeconds, p.PreferredTerminationGracePeriodSeconds)
	if spec.Subdomain == "" {
		spec.Subdomain = ptr.Deref(p.PreferredSubdomain, "")
	}
	if spec.Architecture == "" {
		spec.Architecture = ptr.Deref(p.PreferredArchitecture, "")
	}
}

func preferDevices(spec *kubevirt.VirtualMachineInstanceSpec, d *v1beta1.DevicePreferences) {
	devices := &spec.Domain.Devices
	fill(&devices.AutoattachGraphicsDevice, d.PreferredAutoattachGraphicsDevice)
	fill(&devices.AutoattachPodInterface, d.PreferredAutoattachPodInterface)
	fill(&devices.AutoattachSerialConsole, d.PreferredAutoattachSerialConsole)
	fill(&devices.AutoattachInputDevice, d.PreferredAutoattachInputDevice)
	fill(&devices.BlockMultiQueue, d.PreferredBlockMultiQueue)
	for i := range devices.Inputs {
		if devices.Inputs[i].Bus == "" {
			devices.Inputs[i].Bus = kubevirt.InputBus(d.PreferredInputBus)
		}
	}
	if devices.Rng == nil && d.PreferredRng != nil {
		devices.Rng = &kubevirt.Rng{}
	}
	for i := range devices.Interfaces {
		if devices.Interfaces[i].Model == "" {
			devices.Interfaces[i].Model = d.PreferredInterfaceModel
		}
	}
	drives(spec)
	for i := range devices.Disks {
		preferDisk(&devices.Disks[i], d)
	}
}

// drives adds a disk for every volume without one, so that preferences about disks apply to it.
func drives(spec *kubevirt.VirtualMachineInstanceSpec) {
	for _, v := range spec.Volumes {
		has := slices.ContainsFunc(spec.Domain.Devices.Disks, func(d kubevirt.Disk) bool { return d.Name == v.Name })
		if !has {
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirt.Disk{Name: v.Name})
		}
	}
}

func preferDisk(disk *kubevirt.Disk, d *v1beta1.DevicePreferences) {
	switch {
	case disk.CDRom != nil:
		preferBus(&disk.CDRom.Bus, string(d.PreferredCdromBus))
		return // a CD is only read: how writes are cached is no question
	case disk.LUN != nil:
		preferBus(&disk.LUN.Bus, string(d.PreferredLunBus))
	default:
		if disk.Disk == nil {
			disk.Disk = &kubevirt.DiskTarget{}
		}
		preferBus(&disk.Disk.Bus, string(d.PreferredDiskBus))
	}
	if disk.Cache == "" {
		disk.Cache = kubevirt.DriverCache(d.PreferredDiskCache)
	}
	fill(&disk.BlockSize, ours[kubevirt.BlockSize](d.PreferredDiskBlockSize))
	if disk.IO == "" {
		disk.IO = kubevirt.DriverIO(d.PreferredDiskIO)
	}
}

func preferBus(bus *kubevirt.DiskBus, preferred string) {
	if *bus == "" {
		*bus = kubevirt.DiskBus(preferred)
	}
}

func preferFirmware(domain *kubevirt.DomainSpec, f *v1beta1.FirmwarePreferences) {
	if domain.Firmware != nil && (domain.Firmware.Bootloader != nil || domain.Firmware.KernelBoot != nil) {
		return
	}
	var loader *kubevirt.Bootloader
	switch {
	case f.PreferredEfi != nil:
		loader = &kubevirt.Bootloader{EFI: &kubevirt.EFI{SecureBoot: f.PreferredEfi.SecureBoot}}
	case ptr.Deref(f.DeprecatedPreferredUseEfi, false):
		loader = &kubevirt.Bootloader{EFI: &kubevirt.EFI{SecureBoot: f.DeprecatedPreferredUseSecureBoot}}
	case ptr.Deref(f.PreferredUseBios, false):
		loader = &kubevirt.Bootloader{BIOS: &kubevirt.BIOS{UseSerial: f.PreferredUseBiosSerial}}
	default:
		return
	}
	if domain.Firmware == nil {
		domain.Firmware = &kubevirt.Firmware{}
	}
	domain.Firmware.Bootloader = loader
}

func fill[T any](field **T, preferred *T) {
	if *field == nil && preferred != nil {
		*field = ptr.To(*preferred)
	}
}

// Class returns the storage class the preference wants for claims that name none; empty if it does not care.
func Class(p *Preference) string {
	if p == nil || p.Volumes == nil {
		return ""
	}
	return p.Volumes.PreferredStorageClassName
}
