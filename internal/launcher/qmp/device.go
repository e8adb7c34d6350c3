package qmp

import "strings"

// VolumeOf returns the volume that a device belongs to, by the id or the path that QEMU lists it under.
func VolumeOf(device string) (string, bool) {
	for part := range strings.SplitSeq(device, "/") {
		if volume, ok := strings.CutPrefix(part, Device("")); ok {
			return volume, true
		}
	}
	return "", false
}

// devicePrefix begins the id of every device that is not named by libvirt itself, which demands this prefix.
const devicePrefix = "ua-"

// Device returns the id of the device of a volume or of a network interface, in libvirt (its alias) and in QEMU.
func Device(name string) string { return devicePrefix + name }
