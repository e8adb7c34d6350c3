package launcherapi

import (
	"fmt"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// Bus returns the bus that a disk is on.
func Bus(d kubevirt.Disk) kubevirt.DiskBus {
	var b kubevirt.DiskBus
	fallback := kubevirt.BusVirtio
	switch {
	case d.CDRom != nil:
		b, fallback = d.CDRom.Bus, kubevirt.BusSATA // no guest has a driver for a virtio CD drive
	case d.LUN != nil:
		b, fallback = d.LUN.Bus, kubevirt.BusSCSI
	case d.Disk != nil:
		b = d.Disk.Bus
	}
	if b == "" {
		return fallback
	}
	return b
}

// Pluggable returns why a running machine cannot get such a disk; nil if it can.
func Pluggable(disk kubevirt.Disk) error {
	switch {
	case disk.LUN != nil:
		return fmt.Errorf("disk %q is a lun; a running machine can get disks only", disk.Name)
	case disk.CDRom != nil:
		return fmt.Errorf("disk %q is a CD drive; a running machine can get disks only", disk.Name)
	case Bus(disk) != kubevirt.BusVirtio && Bus(disk) != kubevirt.BusSCSI:
		return fmt.Errorf("disk %q has bus %s; a running machine can get disks on virtio and scsi only", disk.Name, Bus(disk))
	}
	return nil
}
