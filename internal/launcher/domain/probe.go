package domain

import "os"

// ovmf lists where Debian has the firmware, the preferred first.
var ovmf = []Firmware{
	{Code: "/usr/share/OVMF/OVMF_CODE_4M.fd", Vars: "/usr/share/OVMF/OVMF_VARS_4M.fd"},
	{Code: "/usr/share/OVMF/OVMF_CODE.fd", Vars: "/usr/share/OVMF/OVMF_VARS.fd"},
}

// Probe returns what this pod has. KVM is used if the pod has its device, which the node agent gives to pods once it has seen a guest run
// with it.
func Probe() Host {
	var h Host
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		h.KVM = true
		_ = f.Close()
	}
	for _, f := range ovmf {
		if _, err := os.Stat(f.Code); err == nil {
			h.OVMF = f
			break
		}
	}
	return h
}

// Host describes what the launcher's pod offers to a guest.
type Host struct {
	KVM  bool
	OVMF Firmware
}

// Firmware is a pair of files of UEFI: its code, and the template for a machine's variables.
type Firmware struct{ Code, Vars string }
