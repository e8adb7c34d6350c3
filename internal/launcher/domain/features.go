package domain

import (
	"strconv"

	"k8s.io/utils/ptr"
	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// features are the features of the board and of the hypervisor. Those of KVM and Hyper-V need KVM, so an emulated guest has none of them.
func features(f *kubevirt.Features, kvm bool) *libvirtxml.DomainFeatureList {
	out := &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}}
	if f == nil {
		return out
	}
	if !f.ACPI.On() {
		out.ACPI = nil
	}
	if f.APIC != nil && !f.APIC.On() {
		out.APIC = nil
	}
	if f.SMM != nil {
		out.SMM = &libvirtxml.DomainFeatureSMM{State: onOff(f.SMM.On())}
	}
	if !kvm {
		return out
	}
	if f.APIC != nil && f.APIC.On() && f.APIC.EndOfInterrupt {
		out.APIC.EOI = "on"
	}
	if f.KVM != nil && f.KVM.Hidden {
		out.KVM = &libvirtxml.DomainFeatureKVM{Hidden: &libvirtxml.DomainFeatureState{State: "on"}}
	}
	out.PVSpinlock = state(f.Pvspinlock)
	switch {
	case f.HypervPassthrough.On():
		out.HyperV = &libvirtxml.DomainFeatureHyperV{Mode: "passthrough"}
	case f.Hyperv != nil:
		out.HyperV = enlightenments(f.Hyperv)
	}
	return out
}

// enlightenments are the features of Hyper-V that help a Windows guest.
func enlightenments(h *kubevirt.FeatureHyperv) *libvirtxml.DomainFeatureHyperV {
	out := &libvirtxml.DomainFeatureHyperV{
		Relaxed: state(h.Relaxed), VAPIC: state(h.VAPIC), VPIndex: state(h.VPIndex), Runtime: state(h.Runtime), Synic: state(h.SyNIC),
		Reset: state(h.Reset), Frequencies: state(h.Frequencies), ReEnlightenment: state(h.Reenlightenment), IPI: state(h.IPI), EVMCS: state(h.EVMCS),
	}
	if s := h.Spinlocks; s != nil {
		out.Spinlocks = &libvirtxml.DomainFeatureHyperVSpinlocks{DomainFeatureState: *state(&s.FeatureState)}
		if s.On() {
			const retries = 4096 // libvirt requires a number, and this is the least that it accepts
			out.Spinlocks.Retries = retries
			if s.Retries != nil {
				out.Spinlocks.Retries = uint(*s.Retries)
			}
		}
	}
	if v := h.VendorID; v != nil {
		out.VendorId = &libvirtxml.DomainFeatureHyperVVendorId{DomainFeatureState: *state(&v.FeatureState)}
		if v.On() {
			out.VendorId.Value = v.VendorID
		}
	}
	if s := h.SyNICTimer; s != nil {
		out.STimer = &libvirtxml.DomainFeatureHyperVSTimer{DomainFeatureState: *state(&s.FeatureState), Direct: state(s.Direct)}
	}
	if h.TLBFlush != nil { // its parts are newer than this libvirt
		out.TLBFlush = &libvirtxml.DomainFeatureHyperVTLBFlush{DomainFeatureState: *state(&h.TLBFlush.FeatureState)}
	}
	return out
}

// state is the state of a feature in libvirt's words; nil if the machine does not set it.
func state(f *kubevirt.FeatureState) *libvirtxml.DomainFeatureState {
	if f == nil {
		return nil
	}
	return &libvirtxml.DomainFeatureState{State: onOff(f.On())}
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// clock is the guest's clock at its start, and its timers. Timers that the machine does not set are set as they suit most guests.
func clock(c *kubevirt.Clock, kvm bool) *libvirtxml.DomainClock {
	out := &libvirtxml.DomainClock{Offset: "utc"}
	rtc := libvirtxml.DomainTimer{Name: "rtc", TickPolicy: "catchup"}
	pit := libvirtxml.DomainTimer{Name: "pit", TickPolicy: "delay"}
	hpet := libvirtxml.DomainTimer{Name: "hpet", Present: "no"}
	t := &kubevirt.Timer{}
	if c != nil {
		if u := c.UTC; u != nil && u.OffsetSeconds != nil {
			out.Offset, out.Basis, out.Adjustment = "variable", "utc", strconv.Itoa(*u.OffsetSeconds)
		}
		if c.Timer != nil {
			t = c.Timer
		}
	}
	if t.RTC != nil {
		rtc = libvirtxml.DomainTimer{Name: "rtc", TickPolicy: t.RTC.TickPolicy, Track: t.RTC.Track, Present: present(t.RTC.Enabled)}
	}
	if t.PIT != nil {
		pit = libvirtxml.DomainTimer{Name: "pit", TickPolicy: t.PIT.TickPolicy, Present: present(t.PIT.Enabled)}
	}
	if t.HPET != nil {
		hpet = libvirtxml.DomainTimer{Name: "hpet", TickPolicy: t.HPET.TickPolicy, Present: yesNo(ptr.Deref(t.HPET.Enabled, true))}
	}
	out.Timer = []libvirtxml.DomainTimer{rtc, pit, hpet}
	if t.KVM != nil && kvm {
		out.Timer = append(out.Timer, libvirtxml.DomainTimer{Name: "kvmclock", Present: yesNo(ptr.Deref(t.KVM.Enabled, true))})
	}
	if t.Hyperv != nil && kvm {
		out.Timer = append(out.Timer, libvirtxml.DomainTimer{Name: "hypervclock", Present: yesNo(ptr.Deref(t.Hyperv.Enabled, true))})
	}
	return out
}

// present says whether the board has a timer; empty, which is the board's default, if the machine does not set it.
func present(b *bool) string {
	if b == nil {
		return ""
	}
	return yesNo(*b)
}

// inputs are the machine's tablets and keyboards. A machine with a screen that asks for an input device and lists none gets a tablet, whose
// pointer is where the user's is.
func inputs(d kubevirt.Devices) []kubevirt.Input {
	if len(d.Inputs) == 0 && ptr.Deref(d.AutoattachInputDevice, false) && ptr.Deref(d.AutoattachGraphicsDevice, true) {
		return []kubevirt.Input{{Type: kubevirt.InputTablet, Bus: kubevirt.InputUSB, Name: "default"}}
	}
	return d.Inputs
}

// attachInputs adds the tablets, the keyboards and the watchdog.
func attachInputs(d *libvirtxml.DomainDeviceList, spec kubevirt.Devices) {
	for _, i := range inputs(spec) {
		x := libvirtxml.DomainInput{Type: string(i.Type), Bus: "usb"}
		if i.Bus == kubevirt.InputVirtio {
			x.Bus = "virtio"
		}
		d.Inputs = append(d.Inputs, x)
	}
	if w := spec.Watchdog; w != nil && w.I6300ESB != nil {
		x := libvirtxml.DomainWatchdog{Model: "i6300esb", Action: "reset"}
		if w.I6300ESB.Action != "" {
			x.Action = w.I6300ESB.Action
		}
		d.Watchdogs = []libvirtxml.DomainWatchdog{x}
	}
}

// BlockQueues returns the number of queues of a virtio disk: one for each processor, or one if the machine asks for that.
func BlockQueues(d kubevirt.Devices, cpus uint) uint {
	if ptr.Deref(d.BlockMultiQueue, true) {
		return cpus
	}
	return 1
}

// chassis is the SMBIOS data about the machine's case.
func chassis(c *kubevirt.Chassis) *libvirtxml.DomainSysInfoChassis {
	if c == nil {
		return nil
	}
	out := &libvirtxml.DomainSysInfoChassis{}
	for _, e := range []libvirtxml.DomainSysInfoEntry{
		{Name: "manufacturer", Value: c.Manufacturer}, {Name: "version", Value: c.Version}, {Name: "serial", Value: c.Serial},
		{Name: "asset", Value: c.Asset}, {Name: "sku", Value: c.Sku},
	} {
		if e.Value != "" {
			out.Entry = append(out.Entry, e)
		}
	}
	return out
}
