package v1

import (
	"cmp"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Canonical spells a machine's disks and volumes as instances have them: what a disk says of its source becomes a volume of the
// disk's name, ports are numbers, and each access mode has one word. If a volume has the disk's name already, both are kept, and
// admission refuses the machine.
func (s *VirtualMachineInstanceSpec) Canonical() {
	named := map[string]bool{}
	for _, v := range s.Volumes {
		named[v.Name] = true
	}
	for i := range s.Domain.Devices.Disks {
		d := &s.Domain.Devices.Disks[i]
		if d.Source != nil && !named[d.Name] {
			s.Volumes = append(s.Volumes, Volume{Name: d.Name, VolumeSource: d.Source.volume(), AccessMode: d.AccessMode, Copy: d.Copy.volume()})
		}
		d.Source, d.AccessMode, d.Copy = nil, "", nil
	}
	for i := range s.Volumes {
		s.Volumes[i].canonical()
	}
}

// AllVolumes returns the volumes as an instance of the machine has them. The machine stays as it was written.
func (s *VirtualMachineInstanceSpec) AllVolumes() []Volume {
	c := s.DeepCopy()
	c.Canonical()
	return c.Volumes
}

// volume returns the same source in a volume.
func (s *DiskSource) volume() VolumeSource {
	v := s.Volume()
	v.Container = s.Container
	return v
}

// Made says in the volume of that name what its container made. A volume that is not there, or has another source, stays.
func (s *VirtualMachineInstanceSpec) Made(name string, source *MadeSource) {
	for i := range s.Volumes {
		if v := &s.Volumes[i]; v.Name == name && v.Container != nil {
			v.VolumeSource = source.Volume()
			v.canonical()
		}
	}
}

func (v *Volume) canonical() {
	if v.AccessMode == ReadOnly {
		v.AccessMode = ReadShared
	}
	if v.Copy != nil && v.Copy.Mode == CopyNone {
		v.Copy = nil
	}
	for _, h := range v.traits().hosts {
		if h.Port != nil {
			h.Port = new(intstr.FromInt(h.Port.IntValue()))
		}
	}
}

// sources returns the sources that are set, by the name of their protocol. There is at most one in a volume that the API server has accepted.
func (s *NetworkSource) sources() map[string]interface{ traits() traits } {
	out := map[string]interface{ traits() traits }{}
	all := reflect.ValueOf(s).Elem()
	for i := range all.NumField() {
		if source, ok := all.Field(i).Interface().(interface{ traits() traits }); ok && !all.Field(i).IsNil() {
			protocol, _, _ := strings.Cut(all.Type().Field(i).Tag.Get("json"), ",")
			out[protocol] = source
		}
	}
	return out
}

// Protocol returns the name of the source that is set, as volumes spell it; "" if none is.
func (s *NetworkSource) Protocol() string {
	for protocol := range s.sources() {
		return protocol
	}
	return ""
}

// traits returns the traits of the source that is set; the zero value without one.
func (s *NetworkSource) traits() traits {
	for _, source := range s.sources() {
		return source.traits()
	}
	return traits{}
}

// DiskFormat is how the bytes of the network disk are laid out.
func (s *NetworkSource) DiskFormat() DiskFormat { return cmp.Or(s.traits().format, FormatRaw) }

// PortOr returns the port, or the protocol's own if it is not said.
func (h NetworkHost) PortOr(protocol int) int {
	if h.Port == nil {
		return protocol
	}
	return h.Port.IntValue()
}

// Reads reports whether the guest can only read the disk, because the volume says so or because its source is read-only.
func (v *Volume) Reads() bool {
	if v.Copied() != nil {
		return false // it writes to its own copy
	}
	return v.AccessMode == ReadShared || v.traits().readOnly
}

// Networked reports whether QEMU opens the volume at a server.
func (v *Volume) Networked() bool {
	return v.Protocol() != ""
}

// AtServer reports whether the volume is a network disk at a server that can hold it for one client: a file at a URL is only read.
func (v *Volume) AtServer() bool { return v.Networked() && !v.traits().shared }

// AsksDirect returns whether the volume asks to open the network disk behind its claim without a mount; nil if it does not say.
func (v *Volume) AsksDirect() *bool {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.Direct
	case v.DataVolume != nil:
		return v.DataVolume.Direct
	}
	return nil
}
