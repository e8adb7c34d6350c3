package machine

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// fixed is why the guest cannot be moved: the first reason's name, and all of them for a person; empty if it can.
func (s *run) fixed() (reason state.FixedReason, why string) {
	has := func(v corev1.Volume) bool { return v.Name == render.MoveVolume }
	if s.launcher != nil && !slices.ContainsFunc(s.launcher.Spec.Volumes, has) {
		row := state.OfFixed(state.CauseLauncher)
		return row.Reason, row.Text("", "")
	}
	if s.processor != "" {
		row := state.OfFixed(s.processor)
		return row.Reason, row.Text("", s.processorText)
	}
	var texts []string
	for _, v := range s.instance.Spec.Volumes {
		if cause, detail := s.fixedDisk(v); cause != "" {
			texts = append(texts, state.OfFixed(cause).Text(v.Name, detail))
		}
	}
	for _, h := range s.hot {
		switch {
		case h.keep != nil && situation(h.holder) != machine.NoPod:
			texts = append(texts, state.OfFixed(state.CauseKeeping).Text(h.name, ""))
		case !h.wanted: // it is no volume of the machine any more, and its guest may have it
			texts = append(texts, state.OfFixed(state.CauseAdding).Text(h.name, ""))
		}
	}
	if s.launcher != nil && len(s.lastOrders().Removed) > 0 {
		texts = append(texts, state.OfFixed(state.CauseRemoved).Text("", ""))
	}
	if len(texts) == 0 {
		return "", ""
	}
	return state.FixedDisks, strings.Join(texts, "; ")
}

// fixedDisk is why a disk can neither be on two nodes nor be sent; empty if it can.
func (s *run) fixedDisk(v kubevirt.Volume) (cause state.FixedCause, detail string) {
	at := slices.IndexFunc(s.disks, func(d disk) bool { return d.name == v.Name })
	copied := v.Copied()
	for _, h := range s.hot {
		if h.name == v.Name {
			return s.fixedAdded(h)
		}
	}
	switch {
	case v.HostDisk != nil:
		return state.CauseHostDisk, ""
	case v.ContainerImage != nil:
		return state.CauseImage, ""
	case slices.Contains(s.returns.Early, v.Name), at >= 0 && s.disks[at].early:
		return state.CauseEarly, ""
	case copied != nil && copied.Mode != kubevirt.CopyOnWrite:
		return state.CauseCopy, string(copied.Mode)
	case at >= 0 && s.disks[at].stays() && !s.updates.has(v.Name):
		return s.rooted(s.disks[at])
	}
	return "", ""
}

// fixedAdded is why a disk that was added cannot come along; empty if it can.
func (s *run) fixedAdded(h *hot) (cause state.FixedCause, detail string) {
	named := slices.ContainsFunc(s.launcher.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == render.SetsVolume })
	switch {
	case !h.wanted || h.is != machine.Ready || h.access != machine.Have || situation(h.holder) != machine.Up:
		return state.CauseAdding, ""
	case h.pods.Network != nil:
		return state.CauseAddedNetwork, ""
	case !named:
		return state.CauseAdded, ""
	case h.stays():
		return s.rooted(h.disk)
	}
	return "", ""
}

// shared: several nodes can have the claim at once.
func shared(c *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(c.Spec.AccessModes, corev1.ReadWriteMany) || slices.Contains(c.Spec.AccessModes, corev1.ReadOnlyMany)
}

// movable is what is said of it on the instance: nothing before its guest runs.
func (s *run) movable() []kubevirt.Condition {
	if situation(s.launcher) != machine.Up {
		return nil
	}
	all := kubevirt.Condition{Type: "LiveMigratable", Status: corev1.ConditionTrue}
	storage := kubevirt.Condition{Type: "StorageLiveMigratable", Status: corev1.ConditionTrue}
	if reason, why := s.fixed(); reason != "" {
		all.Status, all.Reason, all.Message = corev1.ConditionFalse, string(reason), why
		if reason == state.FixedDisks {
			storage.Status, storage.Reason, storage.Message = all.Status, all.Reason, why
		}
	}
	return []kubevirt.Condition{all, storage}
}

// method is how its disks come along.
func (s *run) method() string {
	sent := func(v kubevirt.Volume) bool { return v.EmptyDisk != nil || v.Copied() != nil }
	if slices.ContainsFunc(s.instance.Spec.Volumes, sent) || slices.ContainsFunc(s.guestDisks(), disk.stays) || len(s.updates.due()) > 0 {
		return "BlockMigration"
	}
	return "LiveMigration"
}

// active are the pods that have the guest, or are to have it.
func (s *run) active() map[types.UID]string {
	out := map[types.UID]string{s.launcher.UID: s.launcher.Spec.NodeName}
	for _, p := range s.others {
		if launcherpod.Ended(p) == "" {
			out[p.UID] = p.Spec.NodeName
		}
	}
	return out
}

// observeMoves finds the last migration of the instance. What was said of one that was deleted since stays.
func (r *Reconciler) observeMoves(ctx context.Context, s *run) error {
	s.migration = s.instance.Status.MigrationState
	all, err := r.migrationsOf(ctx, s.instance.Namespace, s.instance.Name)
	if err != nil {
		return err
	}
	var last *kubevirt.VirtualMachineInstanceMigration
	for i := range all {
		m := &all[i]
		if at := m.Status.MigrationState; at == nil || at.SourcePod == "" || m.CreationTimestamp.Before(&s.instance.CreationTimestamp) ||
			at.TargetPod != "" && at.TargetPod != launcherpod.TargetName(s.instance, m.UID) { // it was of an instance before
			continue
		}
		if last == nil || earlier(last, m) {
			last = m
		}
	}
	if last != nil {
		s.migration = last.Status.MigrationState
	}
	return nil
}
