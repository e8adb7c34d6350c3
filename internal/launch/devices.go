package launch

import (
	"crypto/sha256"
	"fmt"

	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// hotplugPorts is how many disks can be added to a running machine: PCI Express needs its ports from the start.
const hotplugPorts = 16

func devices(m Machine, cpus uint, host Host) *libvirtxml.DomainDeviceList {
	port := uint(0)
	d := &libvirtxml.DomainDeviceList{
		Emulator: "/usr/bin/qemu-system-x86_64",
		Controllers: []libvirtxml.DomainController{
			{Type: "usb", Model: "none"},
			{Type: "scsi", Index: &port, Model: "virtio-scsi", Driver: &libvirtxml.DomainControllerDriver{Queues: &cpus}},
			{Type: "virtio-serial", Index: &port, Model: "virtio-non-transitional"},
		},
		MemBalloon: &libvirtxml.DomainMemBalloon{Model: "none"},
		RNGs: []libvirtxml.DomainRNG{{Model: "virtio-non-transitional",
			Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}}}},
		Channels: []libvirtxml.DomainChannel{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: Agent}},
			Target: &libvirtxml.DomainChannelTarget{
				VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"}},
		}},
	}
	for i := range uint(hotplugPorts) {
		index := i + 1
		d.Controllers = append(d.Controllers, libvirtxml.DomainController{Type: "pci", Index: &index, Model: "pcie-root-port"})
	}
	if on(m.Spec.Domain.Devices.AutoattachSerialConsole, true) {
		d.Serials = []libvirtxml.DomainSerial{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: Serial}},
			Target: &libvirtxml.DomainSerialTarget{Port: &port},
		}}
	}
	if usesUSB(m) {
		d.Controllers[0] = libvirtxml.DomainController{Type: "usb", Index: &port, Model: "qemu-xhci"}
	}
	d.Interfaces = interfaces(m, host)
	return d
}

func usesUSB(m Machine) bool {
	for _, disk := range m.Spec.Domain.Devices.Disks {
		if bus(disk) == kubevirt.BusUSB {
			return true
		}
	}
	return false
}

// interfaces connects the guest to the pod's network: through passt where there is one, else through QEMU's own
// user-mode network. Both need no privilege.
func interfaces(m Machine, host Host) []libvirtxml.DomainInterface {
	spec := m.Spec.Domain.Devices
	list := spec.Interfaces
	if len(list) == 0 && on(spec.AutoattachPodInterface, true) {
		list = []kubevirt.Interface{{Name: "default"}}
	}
	var out []libvirtxml.DomainInterface
	for _, i := range list {
		model := i.Model
		if model == "" || model == "virtio" {
			model = "virtio-non-transitional"
		}
		mac := i.MacAddress
		if mac == "" {
			mac = nameMAC(m.Namespace + "/" + m.Name + "/" + i.Name)
		}
		nic := libvirtxml.DomainInterface{
			MAC:    &libvirtxml.DomainInterfaceMAC{Address: mac},
			Source: &libvirtxml.DomainInterfaceSource{User: &libvirtxml.DomainInterfaceSourceUser{}},
			Model:  &libvirtxml.DomainInterfaceModel{Type: model},
			Alias:  &libvirtxml.DomainAlias{Name: "ua-" + i.Name},
		}
		if host.Passt {
			nic.Backend = &libvirtxml.DomainInterfaceBackend{Type: "passt"}
			nic.PortForward = forwards(i.Ports)
		}
		if i.BootOrder != nil {
			nic.Boot = &libvirtxml.DomainDeviceBoot{Order: *i.BootOrder}
		}
		out = append(out, nic)
	}
	return out
}

// forwards makes the guest's ports reachable at the pod's address; without a list, all of them are.
func forwards(ports []kubevirt.Port) []libvirtxml.DomainInterfaceSourcePortForward {
	out := []libvirtxml.DomainInterfaceSourcePortForward{{Proto: "tcp"}, {Proto: "udp"}}
	if len(ports) == 0 {
		return out
	}
	for _, p := range ports {
		i := 0
		if p.Protocol == "UDP" {
			i = 1
		}
		out[i].Ranges = append(out[i].Ranges, libvirtxml.DomainInterfaceSourcePortForwardRange{Start: uint(p.Port)})
	}
	kept := out[:0]
	for _, f := range out {
		if len(f.Ranges) > 0 {
			kept = append(kept, f)
		}
	}
	return kept
}

func on(b *bool, otherwise bool) bool {
	if b == nil {
		return otherwise
	}
	return *b
}

// nameUUID and nameMAC derive an identity from a name, so that a machine keeps it without anybody remembering it.
func nameUUID(name string) string {
	h := sha256.Sum256([]byte("uuid:" + name))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8 (custom), variant 1, as RFC 9562 has them
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

func nameMAC(name string) string {
	h := sha256.Sum256([]byte("mac:" + name))
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", h[0], h[1], h[2], h[3], h[4]) // 02: locally administered
}
