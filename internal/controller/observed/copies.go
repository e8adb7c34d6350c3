package observed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/pkg/claim"
)

// observeCopies finds where the copies of the machine's volumes are to be, and how much room each has. A launcher has that
// already.
func (r *Reader) observeCopies(ctx context.Context, s *Instance) error {
	if s.Launcher != nil {
		return nil
	}
	return r.PlaceCopies(ctx, s)
}

// PlaceCopies finds where the copies of a launcher that is to be made are.
func (r *Reader) PlaceCopies(ctx context.Context, s *Instance) error {
	copied := func(v kubevirt.Volume) bool { return v.Copied() != nil }
	if !slices.ContainsFunc(s.Object.Spec.Volumes, copied) {
		return nil
	}
	storage, err := r.Storage(ctx)
	if err != nil {
		return err
	}
	for _, v := range s.Object.Spec.Volumes {
		c := v.Copied()
		if c == nil {
			continue
		}
		m, err := s.Medium(v.Name, c, storage)
		if err != nil {
			return err
		}
		s.Pods.Copies = append(s.Pods.Copies, m)
	}
	return nil
}

// Medium returns the storage for a copy.
func (s *Instance) Medium(volume string, c *kubevirt.DiskCopy, storage claim.Cluster) (render.Copy, error) {
	m := render.Copy{Volume: volume}
	at := slices.IndexFunc(s.Disks, func(d diskstate.Disk) bool { return d.Name == volume })
	switch {
	case c.Capacity != nil:
		m.Room, m.Claimed = c.Capacity.Value(), true
	case c.Size != nil:
		m.Room = c.Size.Value()
	case at >= 0:
		m.Room = s.Disks[at].Capacity()
	}
	class := claim.DefaultCopyClass(storage.Classes)
	if c.UsageType != "" {
		if class = claim.ForUsage(storage.Classes, c.UsageType); class == nil {
			s.unoffered(volume, at, unofferedText(volume, c.UsageType, storage.Classes))
			return m, nil
		}
		if m.Room == 0 {
			m.Room, m.Assumed = launcherapi.ClaimRoom, true
		}
	}
	if class == nil || m.Room == 0 { // how large a claim would have to be is known when the machine starts
		return m, nil
	}
	var err error
	m.Class, m.Shared = class.Name, storage.Shareable(class)
	m.Size, err = claim.FilesystemOf(class).Inflate(launcherapi.CopyFile(m.Room), claim.OverheadOf(storage.Overhead, class.Name))
	if err != nil {
		return m, fmt.Errorf("find the size of a claim for the copy of volume %s: %w", volume, err)
	}
	return m, nil
}

// unoffered notes that the machine cannot start for want of a medium. A container disk is no disk of its own until then.
func (s *Instance) unoffered(volume string, at int, why string) {
	if at < 0 {
		at = len(s.Disks)
		s.Disks = append(s.Disks, diskstate.Disk{Name: volume})
	}
	d := &s.Disks[at]
	if d.Why != "" {
		why = d.Why + "; " + why
	}
	d.State, d.Why, d.Unoffered = max(d.State, machine.Missing), why, true
}

// unofferedText says what there is instead of a usage type.
func unofferedText(volume, usage string, classes []storagev1.StorageClass) string {
	text := fmt.Sprintf("the copy of volume %s is to be kept on usage type %s, which no StorageClass offers", volume, usage)
	if there := claim.UsageTypes(classes); len(there) > 0 {
		return text + "; there are: " + strings.Join(there, ", ")
	}
	return text + fmt.Sprintf("; none is offered at all: annotate a StorageClass with %s%s, or leave usageType out", claim.UsageTypePrefix, usage)
}

// MakesCopies reports whether there is a launcher that was told to go and has copies.
func (s *Instance) MakesCopies() bool {
	at := Situation(s.Launcher)
	return s.Released() && (at == machine.Placed || at == machine.Up) &&
		slices.ContainsFunc(s.Object.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Copied() != nil })
}

// WholeCopies returns the sizes of the copies that have all of their masters, by volume.
func (s *Instance) WholeCopies() map[string]int64 {
	out := map[string]int64{}
	for _, v := range s.Object.Spec.Volumes {
		if s.wholeCopy(v) {
			out[v.Name] = s.Returns.Copies[v.Name].Size
		}
	}
	return out
}

// wholeCopy reports whether a volume is a copy that has all of its master. A launcher that does not answer has not said so.
func (s *Instance) wholeCopy(v kubevirt.Volume) bool {
	c, said := v.Copied(), s.Returns.Copies[v.Name]
	return c != nil && s.MakesCopies() && said.LetGo && said.Size > 0 && s.CopyPlan(v.Name, c).Reason == machine.CopyIndependent
}

// CopyPlan returns the plan for the copy of a volume.
func (s *Instance) CopyPlan(volume string, c *kubevirt.DiskCopy) machine.CopyPlan {
	said, word := s.Returns.Copies[volume]
	f := machine.CopyFacts{Holds: true} // a container disk has no record: nobody else has it
	if at := slices.IndexFunc(s.Disks, func(d diskstate.Disk) bool { return d.Name == volume }); at >= 0 {
		f.Holds = s.Disks[at].Holds
	}
	switch c.Mode {
	case kubevirt.CopyOnRead:
		f.Mode = machine.OnRead
	case kubevirt.CopyClone:
		f.Mode = machine.Whole
	case kubevirt.CopyOnWrite, kubevirt.CopyNone:
	}
	switch {
	case word && said.LetGo:
		f.Word = machine.All
	case word:
		f.Word = machine.Part
	}
	return machine.Copy(f)
}
