package domain

import (
	"crypto/sha256"
	"fmt"
	"net"
	"slices"

	"k8s.io/utils/ptr"
	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// The number of a machine's PCI Express ports is fixed when it starts. Virtio disks that are added later use the ports that are free then;
// disks on scsi need none. A guest looks at every port when it boots, and an emulated guest needs a fifth of a second for each, so a small
// machine gets fewer. The number depends on the memory alone, so it is the same on every node that the machine moves to.
const (
	small      = 2 << 30
	smallPorts = 12
	largePorts = 24
)

// ports returns how many PCI Express ports a machine has.
func ports(memory int64) uint {
	if memory <= small {
		return smallPorts
	}
	return largePorts
}

func devices(m launcherapi.Machine, memory int64, cpus uint) *libvirtxml.DomainDeviceList {
	port := uint(0)
	d := &libvirtxml.DomainDeviceList{
		Emulator: "/usr/bin/qemu-system-x86_64",
		Controllers: []libvirtxml.DomainController{
			{Type: "usb", Model: "none"},
			{Type: "scsi", Index: &port, Model: "virtio-scsi", Driver: &libvirtxml.DomainControllerDriver{Queues: &cpus}},
			{Type: "virtio-serial", Index: &port, Model: "virtio-non-transitional"},
		},
		Panics:     []libvirtxml.DomainPanic{{Model: "isa"}}, // so that a guest that panics ends
		MemBalloon: &libvirtxml.DomainMemBalloon{Model: "none"},
		RNGs: []libvirtxml.DomainRNG{{Model: "virtio-non-transitional",
			Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}}}},
		Channels: []libvirtxml.DomainChannel{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: Agent}},
			Target: &libvirtxml.DomainChannelTarget{
				VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"}},
		}},
	}
	for i := range ports(memory) {
		index := i + 1
		d.Controllers = append(d.Controllers, libvirtxml.DomainController{Type: "pci", Index: &index, Model: "pcie-root-port"})
	}
	if ptr.Deref(m.Spec.Domain.Devices.AutoattachSerialConsole, true) {
		d.Serials = []libvirtxml.DomainSerial{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: Serial}},
			Target: &libvirtxml.DomainSerialTarget{Port: &port},
		}}
	}
	if usesUSB(m) {
		d.Controllers[0] = libvirtxml.DomainController{Type: "usb", Index: &port, Model: "qemu-xhci"}
	}
	if ptr.Deref(m.Spec.Domain.Devices.AutoattachGraphicsDevice, true) {
		attachScreen(d)
	}
	d.Interfaces = interfaces(m)
	attachInputs(d, m.Spec.Domain.Devices)
	return d
}

// attachScreen gives the guest a screen. VNC has no authentication here, so it listens at a socket that only the pod's processes can reach.
func attachScreen(d *libvirtxml.DomainDeviceList) {
	d.Graphics = []libvirtxml.DomainGraphic{{VNC: &libvirtxml.DomainGraphicVNC{
		Listeners: []libvirtxml.DomainGraphicListener{{Socket: &libvirtxml.DomainGraphicListenerSocket{Socket: launcherapi.ScreenSocket}}}}}}
	d.Videos = []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: "vga", Heads: 1, VRam: 16 << 10}}}
}

// usesUSB reports whether a disk or an input device is on USB.
func usesUSB(m launcherapi.Machine) bool {
	for _, disk := range m.Spec.Domain.Devices.Disks {
		if launcherapi.Bus(disk) == kubevirt.BusUSB {
			return true
		}
	}
	return slices.ContainsFunc(inputs(m.Spec.Domain.Devices), func(i kubevirt.Input) bool { return i.Bus != kubevirt.InputVirtio })
}

// interfaces connects the guest to the pod's network with QEMU's user-mode network, which needs no privilege: the guest's connections come
// from the pod's address, and the ports that a machine lists are forwarded to it when it runs.
func interfaces(m launcherapi.Machine) []libvirtxml.DomainInterface {
	var out []libvirtxml.DomainInterface
	for _, i := range Interfaces(m) {
		model := i.Model
		if model == "" || model == "virtio" {
			model = "virtio-non-transitional"
		}
		mac := nameMAC(m.Namespace + "/" + m.Name + "/" + i.Name)
		if i.MacAddress != "" {
			mac = colons(i.MacAddress)
		}
		nic := libvirtxml.DomainInterface{
			MAC:    &libvirtxml.DomainInterfaceMAC{Address: mac},
			Source: &libvirtxml.DomainInterfaceSource{User: &libvirtxml.DomainInterfaceSourceUser{}},
			Model:  &libvirtxml.DomainInterfaceModel{Type: model},
			Alias:  &libvirtxml.DomainAlias{Name: qmp.Device(i.Name)},
		}
		if i.ACPIIndex > 0 {
			nic.ACPI = &libvirtxml.DomainDeviceACPI{Index: uint(i.ACPIIndex)}
		}
		if i.State == kubevirt.InterfaceDown {
			nic.Link = &libvirtxml.DomainInterfaceLink{State: "down"}
		}
		if i.BootOrder != nil {
			nic.Boot = &libvirtxml.DomainDeviceBoot{Order: *i.BootOrder}
		}
		out = append(out, nic)
	}
	return out
}

// colons writes a hardware address as libvirt does. Machines may write it with dashes or dots.
func colons(address string) string {
	if mac, err := net.ParseMAC(address); err == nil {
		return mac.String()
	}
	return address // libvirt says what is wrong with it
}

// Interfaces are the machine's network interfaces: one on the pod's network if the machine lists none and does not refuse it.
func Interfaces(m launcherapi.Machine) []kubevirt.Interface {
	spec := m.Spec.Domain.Devices
	if len(spec.Interfaces) == 0 && ptr.Deref(spec.AutoattachPodInterface, true) {
		return []kubevirt.Interface{{Name: "default"}}
	}
	return slices.DeleteFunc(slices.Clone(spec.Interfaces), func(i kubevirt.Interface) bool { return i.State == kubevirt.InterfaceAbsent })
}

// Forwards are the commands of QEMU's human monitor that make the guest's ports reachable at the pod's address.
func Forwards(m launcherapi.Machine) []string {
	var out []string
	for n, i := range Interfaces(m) {
		listed := i.Ports
		if n == 0 {
			listed = append(slices.Clone(listed), probed(m.Spec, listed)...)
		}
		for _, p := range listed {
			protocol := "tcp"
			if p.Protocol == "UDP" {
				protocol = "udp"
			}
			out = append(out, fmt.Sprintf("hostfwd_add host%s %s::%d-:%d", qmp.Device(i.Name), protocol, p.Port, p.Port))
		}
	}
	return out
}

// probed are the ports of the machine's probes that it does not list: the kubelet reaches the guest through them.
func probed(spec kubevirt.VirtualMachineInstanceSpec, listed []kubevirt.Port) []kubevirt.Port {
	var out []kubevirt.Port
	for _, p := range []*kubevirt.Probe{spec.ReadinessProbe, spec.LivenessProbe} {
		port := int32(0)
		switch {
		case p == nil:
		case p.TCPSocket != nil:
			port = p.TCPSocket.Port.IntVal
		case p.HTTPGet != nil:
			port = p.HTTPGet.Port.IntVal
		}
		known := func(q kubevirt.Port) bool { return q.Port == port && q.Protocol != "UDP" }
		if port != 0 && !slices.ContainsFunc(append(slices.Clone(listed), out...), known) {
			out = append(out, kubevirt.Port{Port: port, Protocol: "TCP"})
		}
	}
	return out
}

// nameUUID and nameMAC derive an identity from a name, so that a machine has the same one at every start.
func nameUUID(name string) string {
	h := sha256.Sum256([]byte("uuid:" + name))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8 (custom), variant 1, as RFC 9562 has them
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

func nameMAC(name string) string {
	h := sha256.Sum256([]byte("mac:" + name))
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", h[0], h[1], h[2], h[3], h[4]) // 02: locally administered
}
