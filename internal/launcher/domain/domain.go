// Package domain turns a machine with its disks into a libvirt domain, an XML document: a pure function, and golden files show what it
// returns. Only Probe looks at the pod.
package domain

import (
	"fmt"
	"path"

	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Serial is the path of the socket of the guest's first serial port.
const Serial = launcherapi.StateDir + "/serial.sock"

// Agent is the path of the socket of the guest agent, which libvirt uses.
const Agent = launcherapi.StateDir + "/agent.sock"

// New returns the libvirt domain of a machine. It is a pure function: the same machine, disks and host give the same document.
func New(m launcherapi.Machine, disks map[string]backing.Disk, host Host) (*libvirtxml.Domain, error) {
	spec := m.Spec.Domain
	memory, err := Memory(spec)
	if err != nil {
		return nil, err
	}
	cpus := launcherapi.CPUs(spec.CPU)
	d := &libvirtxml.Domain{
		Type:   "qemu",
		Name:   Name(m),
		UUID:   UUID(m),
		Memory: &libvirtxml.DomainMemory{Value: uint(memory), Unit: "b"},
		VCPU:   &libvirtxml.DomainVCPU{Placement: "static", Value: cpus},
		CPU:    processor(spec.CPU, host.KVM),
		OS: &libvirtxml.DomainOS{
			Type:     &libvirtxml.DomainOSType{Arch: "x86_64", Machine: launcherapi.Board(spec.Machine), Type: "hvm"},
			BIOS:     &libvirtxml.DomainBIOS{UseSerial: yesNo(usesSerial(spec.Firmware))},
			BootMenu: &libvirtxml.DomainBootMenu{Enable: "no"},
			SMBios:   &libvirtxml.DomainSMBios{Mode: "sysinfo"},
		},
		SysInfo:    []libvirtxml.DomainSysInfo{identity(m)},
		Features:   features(spec.Features, host.KVM),
		Clock:      clock(spec.Clock, host.KVM),
		OnPoweroff: "destroy",
		OnReboot:   "restart",
		OnCrash:    "destroy",
		QEMUCommandline: &libvirtxml.DomainQEMUCommandline{Args: []libvirtxml.DomainQEMUCommandlineArg{
			{Value: "-chardev"}, {Value: "socket,id=berth,server=on,wait=off,path=" + qmp.Socket},
			{Value: "-mon"}, {Value: "chardev=berth,mode=control"},
		}},
	}
	if spec.RebootPolicy != nil && *spec.RebootPolicy == kubevirt.RebootTerminates {
		d.OnReboot = "destroy"
	}
	if host.KVM {
		d.Type = "kvm"
	} else if !m.Emulate {
		return nil, fmt.Errorf("this node has no working KVM and the configuration does not allow emulation")
	} else {
		d.QEMUCommandline.Args = append(d.QEMUCommandline.Args, emulatedMemory(memory)...)
	}
	if err := firmware(d, spec.Firmware, host.OVMF); err != nil {
		return nil, err
	}
	d.Devices = devices(m, memory, cpus)
	if err := attachDisks(d.Devices, m, disks, BlockQueues(spec.Devices, cpus)); err != nil {
		return nil, err
	}
	return d, runImage(d, m.Spec, disks, memory)
}

// Name is the name of the machine in libvirt.
func Name(m launcherapi.Machine) string { return m.Namespace + "_" + m.Name }

// Memory returns the bytes of memory that the guest sees.
func Memory(spec kubevirt.DomainSpec) (int64, error) {
	q := launcherapi.Memory(spec)
	const least = 16 << 20 // below this not even a boot loader runs
	if q.Value() < least {
		return 0, fmt.Errorf("the guest has %s of memory; set domain.memory.guest (or resources.requests.memory) to 16Mi or more", q)
	}
	return q.Value(), nil
}

// emulatedMemory gives a guest without KVM 8 KiB more memory than the machine asks for. While a guest is sent to another node, QEMU before 9.0 misses changes that
// an emulated processor makes to memory, and the guest crashes there. It does so only if the size of that memory is a multiple of 64 pages (see QEMU's
// commit 03bfc2188f). libvirt rounds sizes to MiB, so QEMU is given this size past it.
func emulatedMemory(memory int64) []libvirtxml.DomainQEMUCommandlineArg {
	const mib = 1 << 20
	size := (memory+mib-1)/mib*mib + 8<<10
	return []libvirtxml.DomainQEMUCommandlineArg{
		{Value: "-object"}, {Value: fmt.Sprintf("memory-backend-ram,id=berth-memory,size=%d", size)},
		{Value: "-machine"}, {Value: "memory-backend=berth-memory"},
		{Value: "-m"}, {Value: fmt.Sprintf("size=%dk", size>>10)},
	}
}

// processor is the guest's processor: the model the machine names, or the node's.
func processor(c *kubevirt.CPU, kvm bool) *libvirtxml.DomainCPU {
	out := &libvirtxml.DomainCPU{Topology: &libvirtxml.DomainCPUTopology{Sockets: 1, Cores: 1, Threads: 1}}
	model := ""
	if c != nil {
		model = c.Model
		out.Topology = &libvirtxml.DomainCPUTopology{
			Sockets: int(max(c.Sockets, 1)), Cores: int(max(c.Cores, 1)), Threads: int(max(c.Threads, 1))}
		for _, f := range c.Features {
			policy := f.Policy
			if policy == "" {
				policy = "require"
			}
			out.Features = append(out.Features, libvirtxml.DomainCPUFeature{Name: f.Name, Policy: policy})
		}
	}
	switch {
	case !kvm: // an emulated guest gets everything that QEMU can emulate, whatever model the machine names
		out.Mode = "maximum"
	case model == "" || model == "host-model":
		out.Mode = "host-model"
	case model == "host-passthrough":
		out.Mode = model
	default:
		out.Mode, out.Model = "custom", &libvirtxml.DomainCPUModel{Value: model, Fallback: "forbid"}
	}
	return out
}

// usesSerial reports whether the BIOS writes to the serial port.
func usesSerial(f *kubevirt.Firmware) bool {
	return f != nil && f.Bootloader != nil && f.Bootloader.BIOS != nil &&
		f.Bootloader.BIOS.UseSerial != nil && *f.Bootloader.BIOS.UseSerial
}

// firmware chooses BIOS or EFI, or a kernel that needs neither.
func firmware(d *libvirtxml.Domain, f *kubevirt.Firmware, ovmf Firmware) error {
	if f == nil {
		return nil
	}
	if f.Bootloader != nil && f.Bootloader.EFI != nil {
		if ovmf.Code == "" {
			return fmt.Errorf("firmware.bootloader.efi was asked for and this launcher has no OVMF")
		}
		if b := f.Bootloader.EFI.SecureBoot; b != nil && *b {
			return fmt.Errorf("firmware.bootloader.efi.secureBoot is not supported; set it to false")
		}
		d.OS.BIOS = nil
		d.OS.Loader = &libvirtxml.DomainLoader{Path: ovmf.Code, Readonly: "yes", Secure: "no", Type: "pflash"}
		d.OS.NVRam = &libvirtxml.DomainNVRam{NVRam: path.Join(launcherapi.StateDir, "efi-vars.fd"), Template: ovmf.Vars}
	}
	if k := f.KernelBoot; k != nil {
		d.OS.Cmdline = k.KernelArgs
		if k.Container != nil {
			d.OS.Kernel = kernelFile(k.Container.KernelPath)
			d.OS.Initrd = kernelFile(k.Container.InitrdPath)
		}
	}
	return nil
}

// kernelFile is the path in the pod of a file that was copied out of the image with the kernel.
func kernelFile(inImage string) string {
	if inImage == "" {
		return ""
	}
	return path.Join(launcherapi.KernelDir, path.Base(path.Clean("/"+inImage)))
}

// identity is the SMBIOS data, which dmidecode shows in the guest.
func identity(m launcherapi.Machine) libvirtxml.DomainSysInfo {
	entry := func(name, value string) libvirtxml.DomainSysInfoEntry {
		return libvirtxml.DomainSysInfoEntry{Name: name, Value: value}
	}
	system := []libvirtxml.DomainSysInfoEntry{
		entry("manufacturer", "Berth"), entry("product", "Virtual Machine"), entry("uuid", UUID(m)), entry("family", "Berth"),
	}
	if f := m.Spec.Domain.Firmware; f != nil && f.Serial != "" {
		system = append(system, entry("serial", f.Serial))
	}
	return libvirtxml.DomainSysInfo{SMBIOS: &libvirtxml.DomainSysInfoSMBIOS{
		System: &libvirtxml.DomainSysInfoSystem{Entry: system}, Chassis: chassis(m.Spec.Domain.Chassis)}}
}

// UUID stays the same over restarts of a machine, because guests bind licences and addresses to it.
func UUID(m launcherapi.Machine) string {
	if f := m.Spec.Domain.Firmware; f != nil && f.UUID != "" {
		return string(f.UUID)
	}
	return nameUUID(m.Namespace + "/" + m.Name)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
