package livechange

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/testing/golden"
)

type spec = kubevirt.VirtualMachineInstanceSpec

func disk1(name, bus string) kubevirt.Disk {
	return kubevirt.Disk{Name: name, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.DiskBus(bus)}}}
}

func cd(name string) kubevirt.Disk {
	return kubevirt.Disk{Name: name, DiskDevice: kubevirt.DiskDevice{CDRom: &kubevirt.CDRomTarget{}}}
}

func claim(name, of string, hotpluggable bool) kubevirt.Volume {
	return kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: of, Hotpluggable: hotpluggable}}}
}

// vm returns a machine with a root disk, and with more.
func vm(changes ...func(*spec)) spec {
	s := spec{Volumes: []kubevirt.Volume{claim("root", "root", false)}}
	s.Domain.Devices.Disks = []kubevirt.Disk{disk1("root", "")}
	for _, c := range changes {
		c(&s)
	}
	return s
}

func with(d *kubevirt.Disk, v *kubevirt.Volume) func(*spec) {
	return func(s *spec) {
		if d != nil {
			s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, *d)
		}
		if v != nil {
			s.Volumes = append(s.Volumes, *v)
		}
	}
}

func memory(size string) func(*spec) {
	return func(s *spec) {
		q := resource.MustParse(size)
		s.Domain.Memory = &kubevirt.Memory{Guest: &q}
	}
}

// TestDecide has every change of a running machine's template, and what it comes to.
func TestDecide(t *testing.T) {
	hot, cold, other := claim("data", "a", true), claim("data", "a", false), claim("data", "b", true)
	virtio, sata, drive := disk1("data", ""), disk1("data", "sata"), cd("data")
	network := kubevirt.Volume{Name: "data", Hotpluggable: true, VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{Export: "a"}}}}
	elsewhere := kubevirt.Volume{Name: "data", Hotpluggable: true, VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{Export: "b"}}}}
	plain, given := vm(), []string{"root", "data"}
	cases := []struct {
		name string
		f    Facts
	}{
		{"nothing changed", Facts{Want: plain, Has: plain, FromTemplate: []string{"root"}}},
		{"a size is spelled otherwise", Facts{Want: vm(memory("1Gi")), Has: vm(memory("1024Mi"))}},
		{"memory changed", Facts{Want: vm(memory("2Gi")), Has: vm(memory("1Gi"))}},
		{"a hotpluggable disk is added", Facts{Want: vm(with(&virtio, &hot)), Has: plain}},
		{"a hotpluggable volume without a disk is added", Facts{Want: vm(with(nil, &hot)), Has: plain}},
		{"a disk that is not hotpluggable is added", Facts{Want: vm(with(&virtio, &cold)), Has: plain}},
		{"a disk on a bus without hotplug is added", Facts{Want: vm(with(&sata, &hot)), Has: plain}},
		{"a network disk is added", Facts{Want: vm(with(&virtio, &network)), Has: plain}},
		{"a CD drive is added", Facts{Want: vm(with(&drive, &hot)), Has: plain}},
		{"an empty CD drive is added", Facts{Want: vm(with(&drive, nil)), Has: plain}},
		{"a hotpluggable disk is removed", Facts{Want: plain, Has: vm(with(&virtio, &hot)), FromTemplate: given}},
		{"a disk was added to the instance alone", Facts{Want: plain, Has: vm(with(&virtio, &hot)), FromTemplate: []string{"root"}}},
		{"of an instance from before nothing is removed", Facts{Want: plain, Has: vm(with(&virtio, &hot))}},
		{"a disk that is not hotpluggable is removed", Facts{Want: plain, Has: vm(with(&virtio, &cold)), FromTemplate: given}},
		{"a hotpluggable disk is in another claim", Facts{Want: vm(with(&virtio, &other)), Has: vm(with(&virtio, &hot)), FromTemplate: given}},
		{"a hotpluggable disk is in another claim, which is not there", Facts{Want: vm(with(&virtio, &other)), Has: vm(with(&virtio, &hot)), FromTemplate: given, Unready: []string{"data"}}},
		{"its old disk is gone from the instance and not yet from the guest", Facts{Want: vm(with(&virtio, &other)), Has: plain, FromTemplate: []string{"root"}, Leaving: []string{"data"}}},
		{"its old disk is gone", Facts{Want: vm(with(&virtio, &other)), Has: plain, FromTemplate: []string{"root"}}},
		{"it is sent there by a migration", Facts{Want: vm(with(&virtio, &other)), Has: vm(with(&virtio, &hot)), FromTemplate: given, Migrates: true}},
		{"a network disk is at another address", Facts{Want: vm(with(&virtio, &elsewhere)), Has: vm(with(&virtio, &network)), FromTemplate: given}},
		{"a medium is inserted", Facts{Want: vm(with(&drive, &hot)), Has: vm(with(&drive, nil)), FromTemplate: []string{"root"}}},
		{"a medium is ejected", Facts{Want: vm(with(&drive, nil)), Has: vm(with(&drive, &hot)), FromTemplate: given}},
		{"a medium is exchanged", Facts{Want: vm(with(&drive, &other)), Has: vm(with(&drive, &hot)), FromTemplate: given, Migrates: true}},
		{"a medium that is not hotpluggable is ejected", Facts{Want: vm(with(&drive, nil)), Has: vm(with(&drive, &cold)), FromTemplate: given}},
		{"a medium at a server is inserted", Facts{Want: vm(with(&drive, &network)), Has: vm(with(&drive, nil)), FromTemplate: []string{"root"}}},
		{"a drive is removed with its medium", Facts{Want: plain, Has: vm(with(&drive, &hot)), FromTemplate: given}},
	}
	var text strings.Builder
	for _, c := range cases {
		p := Decide(c.f)
		fmt.Fprintf(&text, "%s\n  volumes %v disks %v", c.name, describe(p.Volumes), names(p.Disks, nil, diskName))
		fmt.Fprintf(&text, " from the template %v\n", p.FromTemplate)
		if len(p.Waiting)+len(p.Restart) > 0 {
			fmt.Fprintf(&text, "  waiting %v restart %v\n", p.Waiting, p.Restart)
		}
		again := c.f
		again.Has.Volumes, again.Has.Domain.Devices.Disks, again.FromTemplate = p.Volumes, p.Disks, p.FromTemplate
		if q := Decide(again); !slices.Equal(describe(p.Volumes), describe(q.Volumes)) && c.name != "a hotpluggable disk is in another claim" && c.name != "a medium is exchanged" {
			t.Errorf("%s: then %v, and again %v", c.name, describe(p.Volumes), describe(q.Volumes))
		}
	}
	golden.Equal(t, "testdata/decisions.txt", text.String())
}

func describe(all []kubevirt.Volume) []string {
	var out []string
	for _, v := range all {
		of := claimName(v)
		if v.NBD != nil {
			of = "nbd " + v.NBD.Export
		}
		out = append(out, v.Name+"="+of)
	}
	return out
}
