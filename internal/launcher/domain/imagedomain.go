package domain

import (
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/imagevm"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// OrdersFile has the program that a machine runs, for QEMU to hand to the guest; QEMU writes to endedFile how the guest says that it ended.
const (
	OrdersFile = launcherapi.StateDir + "/entry.json"
	EndedFile  = launcherapi.StateDir + "/entry-ended.json"
)

// imageMemory is the least memory of a machine from a container image: the kernel needs some of it, and the program the rest.
const imageMemory = 128 << 20

// runImage lets a machine from a container image boot Berth's own kernel, which gets the program to run and reports how it ended.
func runImage(d *libvirtxml.Domain, spec kubevirt.VirtualMachineInstanceSpec, disks map[string]backing.Disk, memory int64) error {
	ours := slices.DeleteFunc(Disks(spec), func(disk kubevirt.Disk) bool { return disks[disk.Name].Orders == "" })
	switch {
	case len(ours) == 0:
		return nil
	case len(ours) > 1:
		return fmt.Errorf("volumes %s and %s are container images: a machine runs the program of one", ours[0].Name, ours[1].Name)
	case spec.Domain.Firmware != nil && spec.Domain.Firmware.KernelBoot != nil:
		return fmt.Errorf("volume %s is a container image, which boots a kernel of its own: remove firmware.kernelBoot", ours[0].Name)
	case ours[0].CDRom != nil || ours[0].LUN != nil || launcherapi.Bus(ours[0]) != kubevirt.BusVirtio && launcherapi.Bus(ours[0]) != kubevirt.BusSCSI:
		return fmt.Errorf("volume %s is a container image: its disk must be on virtio or scsi", ours[0].Name)
	case memory < imageMemory:
		return fmt.Errorf("the guest has %d bytes of memory; a machine from a container image needs %d", memory, imageMemory)
	}
	d.OS.Kernel, d.OS.Initrd = launcherapi.OwnKernel, launcherapi.OwnInitrd
	d.OS.Cmdline = "console=ttyS0 quiet panic=-1 no_timer_check cryptomgr.notests=1"
	d.SysInfo = append(d.SysInfo, libvirtxml.DomainSysInfo{FWCfg: &libvirtxml.DomainSysInfoFWCfg{Entry: []libvirtxml.DomainSysInfoEntry{
		{Name: imagevm.OrdersName, File: disks[ours[0].Name].Orders}}}})
	d.Devices.Channels = append(d.Devices.Channels, libvirtxml.DomainChannel{
		Source: &libvirtxml.DomainChardevSource{File: &libvirtxml.DomainChardevSourceFile{Path: EndedFile}},
		Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: imagevm.PortName}},
	})
	return nil
}
