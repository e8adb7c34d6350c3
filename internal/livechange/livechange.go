// Package livechange compares the template of a running machine with its instance. It finds the volumes that the instance gets or loses while
// its guest runs, and the changes that wait for the next start.
//
// It is a pure function of the two specs. It does not know clients, pods or disks: internal/controller/compose gathers the facts and writes
// the instance.
package livechange

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Facts is everything the comparison depends on.
type Facts struct {
	// Want is the spec of the instance that the machine would be started with now.
	Want kubevirt.VirtualMachineInstanceSpec
	// Has is the spec of the running instance.
	Has kubevirt.VirtualMachineInstanceSpec
	// FromTemplate are the names of the volumes that the instance got from the template. Only these are removed with the template's: the
	// others were added to the instance alone.
	FromTemplate []string
	// Migrates: the disk of a volume that was changed to another claim is sent there by a migration.
	Migrates bool
	// Unready are the names of the template's volumes whose claims a guest cannot get yet: none of them takes the place of a disk that the guest
	// has.
	Unready []string
	// Leaving are the names of removed volumes whose disks are not given back yet. No other volume gets such a name.
	Leaving []string
}

// Plan is the result of a comparison.
type Plan struct {
	// Volumes and Disks are those that the instance is to have.
	Volumes []kubevirt.Volume
	Disks   []kubevirt.Disk
	// FromTemplate are the names of the volumes that the instance then has from the template.
	FromTemplate []string
	// Waiting are the volumes that the instance gets when the disk that has their name is given back, or when their claims are ready.
	Waiting []string
	// Restart are the fields whose changes wait for the next start, as paths below the template's spec.
	Restart []string
}

// Decide compares the template with the instance.
func Decide(f Facts) Plan {
	p := Plan{Disks: slices.Clone(f.Has.Domain.Devices.Disks)}
	for _, v := range f.Has.Volumes {
		if f.removes(v) {
			p.drop(v.Name)
			continue
		}
		p.Volumes = append(p.Volumes, v)
		if f.waits(v) {
			p.Waiting = append(p.Waiting, v.Name)
		}
		if want := volume(f.Want.Volumes, v.Name); slices.Contains(f.FromTemplate, v.Name) || want != nil && equality.Semantic.DeepEqual(*want, v) {
			p.FromTemplate = append(p.FromTemplate, v.Name)
		}
	}
	for _, v := range f.Want.Volumes {
		switch {
		case volume(p.Volumes, v.Name) != nil || !f.adds(v):
		case slices.Contains(f.Leaving, v.Name) || volume(f.Has.Volumes, v.Name) != nil:
			p.Waiting = append(p.Waiting, v.Name)
		default:
			p.add(f, v)
		}
	}
	p.Restart = f.restart(p)
	return p
}

// removes reports whether the instance has the volume from the template, which has it no more, or has another disk of that name.
func (f Facts) removes(v kubevirt.Volume) bool {
	if !v.CanBeRemoved() || !slices.Contains(f.FromTemplate, v.Name) {
		return false
	}
	want := volume(f.Want.Volumes, v.Name)
	return want == nil || f.Exchanges(v, *want)
}

// Exchanges reports whether a volume of the instance gets the claim that the template has for it while the guest runs: the disk that the guest
// has is removed, and the other is added.
func (f Facts) Exchanges(has, want kubevirt.Volume) bool {
	if !has.CanBeRemoved() || !want.CanBeRemoved() || !slices.Contains(f.FromTemplate, has.Name) || slices.Contains(f.Unready, has.Name) ||
		claimName(has) == "" || claimName(want) == "" || claimName(has) == claimName(want) {
		return false
	}
	d := disk(f.Has.Domain.Devices.Disks, has.Name)
	return d.CDRom != nil || !f.Migrates && launcherapi.Pluggable(d) == nil
}

// waits reports whether the disk would be exchanged if the claim of the other were ready.
func (f Facts) waits(v kubevirt.Volume) bool {
	want := volume(f.Want.Volumes, v.Name)
	if want == nil || !slices.Contains(f.Unready, v.Name) {
		return false
	}
	f.Unready = nil
	return f.Exchanges(v, *want)
}

// adds reports whether a running guest can get the volume.
func (f Facts) adds(v kubevirt.Volume) bool {
	d := disk(f.Want.Domain.Devices.Disks, v.Name)
	switch {
	case !v.CanBeRemoved() || v.Copied() != nil:
		return false
	case d.CDRom != nil: // the guest needs to have the drive
		return claimName(v) != "" && disk(f.Has.Domain.Devices.Disks, v.Name).CDRom != nil
	}
	return launcherapi.Pluggable(d) == nil
}

// drop removes a volume's disk. A CD drive stays, empty.
func (p *Plan) drop(name string) {
	p.Disks = slices.DeleteFunc(p.Disks, func(d kubevirt.Disk) bool { return d.Name == name && d.CDRom == nil })
}

func (p *Plan) add(f Facts, v kubevirt.Volume) {
	p.Volumes, p.FromTemplate = append(p.Volumes, v), append(p.FromTemplate, v.Name)
	named := func(d kubevirt.Disk) bool { return d.Name == v.Name }
	if at := slices.IndexFunc(f.Want.Domain.Devices.Disks, named); at >= 0 && !slices.ContainsFunc(p.Disks, named) {
		p.Disks = append(p.Disks, f.Want.Domain.Devices.Disks[at])
	}
}

func volume(all []kubevirt.Volume, name string) *kubevirt.Volume {
	if at := slices.IndexFunc(all, func(v kubevirt.Volume) bool { return v.Name == name }); at >= 0 {
		return &all[at]
	}
	return nil
}

// disk returns the disk of a volume; a volume without one gets the default.
func disk(all []kubevirt.Disk, name string) kubevirt.Disk {
	if at := slices.IndexFunc(all, func(d kubevirt.Disk) bool { return d.Name == name }); at >= 0 {
		return all[at]
	}
	return kubevirt.Disk{Name: name}
}
