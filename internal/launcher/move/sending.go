package move

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// sending is the data of a guest that is sent besides its memory.
type sending struct {
	guest    string            // the document that the target's libvirt gets
	mirrored []string          // the disks that are sent, as libvirt names them
	sizes    map[string]int64  // of those, by volume
	volumes  map[string]string // of those, as libvirt names them
}

// plainly returns libvirt's error with the names of volumes in place of libvirt's names for disks.
func (s *sending) plainly(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if strings.Contains(text, "client socket is closed") || strings.Contains(text, "Lost connection to destination host") {
		return fmt.Errorf("the target is gone, or cannot be reached any more: %w", err)
	}
	_, rest, ok := strings.Cut(text, "migration of disk ")
	device, why, failed := strings.Cut(rest, " failed")
	volume := s.volumes[device]
	switch {
	case !ok || !failed || volume == "":
		return err
	case strings.Contains(why, "No space left on device"):
		return fmt.Errorf("disk %s cannot be written at the target, which has no room for it: free space there, or let the guest go to another node", volume)
	}
	return fmt.Errorf("disk %s cannot be sent%s", volume, why)
}

// mirrored reports whether a disk is sent: it is this launcher's alone, or the target has another claim for it.
func mirrored(v kubevirt.Volume, o launcherapi.Move) bool {
	return v.EmptyDisk != nil || v.Copied() != nil && !slices.Contains(o.Opened, v.Name) || slices.Contains(o.Disks, v.Name)
}

// sending looks at the guest as it is now: disks may have been added since it was started.
func (v *Source) sending(g guest.Guest, o launcherapi.Move) (*sending, error) {
	d, text, err := g.Describe(libvirt.DomainXMLMigratable)
	if err != nil {
		return nil, err
	}
	devices := domain.Targets(d)
	if err := sameDisks(devices, g.Machine, o); err != nil {
		return nil, err
	}
	s := &sending{guest: elsewhere(text, d), sizes: map[string]int64{}, volumes: map[string]string{}}
	volumes := slices.Clone(o.Disks)
	for _, v := range g.Machine.Spec.Volumes {
		if mirrored(v, o) && !slices.Contains(volumes, v.Name) {
			volumes = append(volumes, v.Name)
		}
	}
	for _, volume := range volumes {
		device := devices[qmp.Device(volume)]
		_, size, err := v.qemu.Disk(volume)
		if err == nil && device == "" {
			err = errors.New("libvirt does not know it")
		}
		if err != nil {
			return nil, fmt.Errorf("send the disk of volume %s: %w", volume, err)
		}
		s.mirrored, s.sizes[volume], s.volumes[device] = append(s.mirrored, device), size, volume
	}
	return s, nil
}

// sameDisks returns an error unless the guest has exactly the disks that the target was made for: a disk that the target lacks would be lost,
// and a claim that the guest no longer has would count as moved.
func sameDisks(devices map[string]string, m launcherapi.Machine, o launcherapi.Move) error {
	want := o.Volumes
	if want == nil {
		for _, v := range m.Spec.Volumes {
			want = append(want, v.Name)
		}
	}
	has := map[string]bool{}
	for name := range devices {
		has[strings.TrimPrefix(name, qmp.Device(""))] = true
	}
	var differ []string
	for _, name := range want {
		if !has[name] {
			differ = append(differ, name)
		}
		delete(has, name)
	}
	differ = append(differ, slices.Collect(maps.Keys(has))...)
	if len(differ) == 0 {
		return nil
	}
	slices.Sort(differ)
	return fmt.Errorf("disks were added to the guest or taken from it while the move was prepared (%s): migrate again", strings.Join(differ, ", "))
}

// elsewhere returns the document with other paths for the disks that holders handed over: those that the disks have at the target, whose pod was
// made with them.
func elsewhere(text string, d *libvirtxml.Domain) string {
	for _, disk := range d.Devices.Disks {
		s := disk.Source
		if disk.Alias == nil || s == nil {
			continue
		}
		volume, was, is := strings.TrimPrefix(disk.Alias.Name, qmp.Device("")), "", ""
		switch {
		case s.Block != nil:
			was, is = s.Block.Dev, backing.ClaimDevice(volume)
		case s.File != nil:
			was, is = s.File.File, backing.ClaimFile(volume)
		}
		if strings.HasPrefix(was, launcherapi.SetsDir+"/") {
			text = strings.ReplaceAll(text, "'"+was+"'", "'"+is+"'")
		}
	}
	return text
}
