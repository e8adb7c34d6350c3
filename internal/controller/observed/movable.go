package observed

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/disk"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// Fixed is why the guest cannot be moved: the first reason's name, and all of them for a person; empty if it can.
func (s *Instance) Fixed() (reason state.FixedReason, why string) {
	has := func(v corev1.Volume) bool { return v.Name == render.MoveVolume }
	if s.Launcher != nil && !slices.ContainsFunc(s.Launcher.Spec.Volumes, has) {
		row := state.OfFixed(state.CauseLauncher)
		return row.Reason, row.Text("", "")
	}
	if s.processor != "" {
		row := state.OfFixed(s.processor)
		return row.Reason, row.Text("", s.processorText)
	}
	var texts []string
	for _, v := range s.Object.Spec.Volumes {
		if cause, detail := s.FixedDisk(v); cause != "" {
			texts = append(texts, state.OfFixed(cause).Text(v.Name, detail))
		}
	}
	for _, h := range s.Added {
		switch {
		case h.Keep != nil && Situation(h.Holder) != machine.NoPod:
			texts = append(texts, state.OfFixed(state.CauseKeeping).Text(h.Name, ""))
		case !h.Wanted: // it is no volume of the machine any more, and its guest may have it
			texts = append(texts, state.OfFixed(state.CauseAdding).Text(h.Name, ""))
		}
	}
	if s.Launcher != nil && len(s.LastOrders().Removed) > 0 {
		texts = append(texts, state.OfFixed(state.CauseRemoved).Text("", ""))
	}
	if len(texts) == 0 {
		return "", ""
	}
	return state.FixedDisks, strings.Join(texts, "; ")
}

// FixedDisk is why a disk can neither be on two nodes nor be sent; empty if it can.
func (s *Instance) FixedDisk(v kubevirt.Volume) (cause state.FixedCause, detail string) {
	at := slices.IndexFunc(s.Disks, func(d diskstate.Disk) bool { return d.Name == v.Name })
	copied := v.Copied()
	for _, h := range s.Added {
		if h.Name == v.Name {
			return s.fixedAdded(h)
		}
	}
	kind := disk.Of(v.VolumeSource)
	switch {
	case kind.Moves == disk.Never:
		return kind.Cause, ""
	case slices.Contains(s.Returns.Early, v.Name), at >= 0 && s.Disks[at].Early:
		return state.CauseEarly, ""
	case s.wholeCopy(v): // it is the guest's alone, and sent
		return "", ""
	case copied != nil && copied.Mode != kubevirt.CopyOnWrite:
		return state.CauseCopy, string(copied.Mode)
	case at >= 0 && s.Disks[at].Stays() && !s.Updates.Has(v.Name):
		return s.Rooted(s.Disks[at])
	}
	return "", ""
}

// fixedAdded is why a disk that was added cannot come along; empty if it can.
func (s *Instance) fixedAdded(h *Added) (cause state.FixedCause, detail string) {
	named := slices.ContainsFunc(s.Launcher.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == render.SetsVolume })
	switch {
	case !h.Wanted || h.State != machine.Ready || h.Access != machine.Have || Situation(h.Holder) != machine.Up:
		return state.CauseAdding, ""
	case h.Pods.Network != nil:
		return state.CauseAddedNetwork, ""
	case !named:
		return state.CauseAdded, ""
	case h.Stays():
		return s.Rooted(h.Disk)
	}
	return "", ""
}

// observeMoves finds the last migration of the instance. What was said of one that was deleted since stays.
func (r *Reader) observeMoves(ctx context.Context, s *Instance) error {
	s.Migration = s.Object.Status.MigrationState
	all, err := r.MigrationsOf(ctx, s.Object.Namespace, s.Object.Name)
	if err != nil {
		return err
	}
	var last *kubevirt.VirtualMachineInstanceMigration
	for i := range all {
		m := &all[i]
		if at := m.Status.MigrationState; at == nil || at.SourcePod == "" || m.CreationTimestamp.Before(&s.Object.CreationTimestamp) ||
			at.TargetPod != "" && at.TargetPod != launcherpod.TargetName(s.Object, m.UID) { // it was of an instance before
			continue
		}
		if last == nil || Earlier(last, m) {
			last = m
		}
	}
	if last != nil {
		s.Migration = last.Status.MigrationState
	}
	return nil
}
