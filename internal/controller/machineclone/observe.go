package machineclone

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	clonev1 "github.com/berth-vm/berth/api/clone/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/restore"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/decide/machineclone"
	"github.com/berth-vm/berth/internal/state"
)

// seen is one clone and everything its next step depends on, read once, from the API server and not the cache: a moment later the
// name may belong to another object.
type seen struct {
	of       *clonev1.VirtualMachineClone
	source   bool // it exists
	snapshot *snapshotv1.VirtualMachineSnapshot
	content  *snapshotv1.VirtualMachineSnapshotContent // nil: the snapshot records nothing yet
	restore  *snapshotv1.VirtualMachineRestore
	target   *kubevirt.VirtualMachine
	name     string   // the target's; empty: not known yet
	taken    string   // what has a name that the clone needs and is not its
	patches  []string // of the target
	wrong    string   // why the clone cannot be made
}

// Names are from the clone's UID, so that what was made before a crash is found again.
func snapshotName(c *clonev1.VirtualMachineClone) string { return "tmp-snapshot-" + string(c.UID) }
func restoreName(c *clonev1.VirtualMachineClone) string  { return "tmp-restore-" + string(c.UID) }

func fromSnapshot(c *clonev1.VirtualMachineClone) bool {
	return c.Spec.Source.Kind == "VirtualMachineSnapshot"
}

// observe reads what a clone depends on.
func (r *Reconciler) observe(ctx context.Context, of *clonev1.VirtualMachineClone) (*seen, error) {
	s := &seen{of: of}
	if err := r.observeSnapshot(ctx, s); err != nil {
		return nil, err
	}
	restore, err := cluster.Get[snapshotv1.VirtualMachineRestore](ctx, r.live, of.Namespace, restoreName(of))
	switch {
	case err != nil:
		return nil, err
	case restore != nil && !cluster.OwnedBy(restore, of.UID):
		s.taken = "VirtualMachineRestore " + restore.Name
	default:
		s.restore = restore
	}
	s.name = s.targetName()
	if s.name != "" {
		if s.target, err = cluster.Get[kubevirt.VirtualMachine](ctx, r.live, of.Namespace, s.name); err != nil {
			return nil, err
		}
	}
	s.plan()
	return s, nil
}

// observeSnapshot reads the source, and the snapshot that the target is made from. A snapshot that the clone took continues
// without its source.
func (r *Reconciler) observeSnapshot(ctx context.Context, s *seen) error {
	of := s.of
	var err error
	if fromSnapshot(of) {
		s.snapshot, err = cluster.Get[snapshotv1.VirtualMachineSnapshot](ctx, r.live, of.Namespace, of.Spec.Source.Name)
		s.source = s.snapshot != nil
	} else {
		var vm *kubevirt.VirtualMachine
		if vm, err = cluster.Get[kubevirt.VirtualMachine](ctx, r.live, of.Namespace, of.Spec.Source.Name); err != nil {
			return err
		}
		s.source = vm != nil && vm.DeletionTimestamp == nil
		s.snapshot, err = cluster.Get[snapshotv1.VirtualMachineSnapshot](ctx, r.live, of.Namespace, snapshotName(of))
		if err == nil && s.snapshot != nil && !cluster.OwnedBy(s.snapshot, of.UID) {
			s.taken, s.snapshot = "VirtualMachineSnapshot "+s.snapshot.Name, nil
		}
	}
	if err != nil || s.snapshot == nil {
		return err
	}
	s.content, err = cluster.Get[snapshotv1.VirtualMachineSnapshotContent](ctx, r.live, of.Namespace, snapshotcontent.ContentName(s.snapshot))
	if err == nil && s.content != nil && !cluster.OwnedBy(s.content, s.snapshot.UID) {
		s.content = nil // not made by this clone
	}
	return err
}

// machine returns the machine that the snapshot records; nil: none.
func (s *seen) machine() *snapshotv1.VirtualMachine {
	if s.content == nil || s.content.Spec.Source.VirtualMachine == nil || s.content.Spec.Source.VirtualMachine.Spec.Template == nil {
		return nil
	}
	return s.content.Spec.Source.VirtualMachine
}

// targetName returns the name of the machine to make: the name in the clone, the recorded one, or one made from the source's name
// and the clone's UID.
func (s *seen) targetName() string {
	switch t, m := s.of.Spec.Target, s.machine(); {
	case t != nil && t.Name != "":
		return t.Name
	case s.restore != nil:
		return s.restore.Spec.Target.Name
	case s.of.Status.TargetName != nil && over(s.of) != machineclone.NotOver:
		return *s.of.Status.TargetName
	case m != nil:
		name, end := m.ObjectMeta.Name, "-clone-"+string(s.of.UID[:min(5, len(s.of.UID))])
		return strings.TrimRight(name[:min(len(name), 63-len(end))], "-.") + end
	}
	return ""
}

// plan makes the target from its source, or finds the reason why it cannot be made.
func (s *seen) plan() {
	was := s.machine()
	if was == nil {
		return
	}
	var err error
	switch s.patches, err = patches(was, &s.of.Spec); {
	case err != nil:
		s.wrong = err.Error()
	case s.name == was.ObjectMeta.Name: // a restore would put the snapshot back in place
		s.wrong = fmt.Sprintf("the snapshot is of machine %s; name another target, or restore the snapshot", s.name)
	}
}

// facts returns the facts for the decision.
func (s *seen) facts() machineclone.Facts {
	return machineclone.Facts{Over: over(s.of), Source: s.sourceNow(), Snapshot: s.snapshotNow(), Restore: s.restoreNow(), Target: s.targetNow(), Wrong: s.wrong != ""}
}

func (s *seen) sourceNow() machineclone.Source {
	switch {
	case !s.source:
		return machineclone.NoSource
	case fromSnapshot(s.of):
		return machineclone.OfSnapshot
	}
	return machineclone.Machine
}

func (s *seen) snapshotNow() machineclone.Snapshot {
	switch {
	case strings.HasPrefix(s.taken, "VirtualMachineSnapshot "):
		return machineclone.SnapshotTaken
	case s.snapshot == nil:
		return machineclone.NoSnapshot
	case s.snapshot.Status.Phase == snapshotv1.Failed:
		return machineclone.Unusable
	case !ptr.Deref(s.snapshot.Status.ReadyToUse, false):
		return machineclone.Taking
	case s.machine() == nil || len(snapshotcontent.LeftOut(s.content)) > 0:
		return machineclone.Partial
	}
	return machineclone.Ready
}

func (s *seen) restoreNow() machineclone.Restore {
	switch {
	case strings.HasPrefix(s.taken, "VirtualMachineRestore "):
		return machineclone.RestoreTaken
	case s.restore == nil:
		return machineclone.NoRestore
	}
	switch restore.Ended(s.restore) {
	case state.Well:
		return machineclone.Restored
	case state.Badly:
		return machineclone.RestoreBroken
	case state.GoingOn:
	}
	return machineclone.Restoring
}

func (s *seen) targetNow() machineclone.Target {
	switch {
	case s.target == nil:
		return machineclone.NoTarget
	case restore.Made(s.restore, s.target):
		return machineclone.Ours
	}
	return machineclone.Other
}

// over returns how the clone ended. It is a record: what it was made from is deleted then, and its target may be changed.
func over(c *clonev1.VirtualMachineClone) machineclone.Over {
	is := func(kind string, status corev1.ConditionStatus) bool {
		return slices.ContainsFunc(c.Status.Conditions, func(c clonev1.Condition) bool { return c.Type == kind && c.Status == status })
	}
	switch {
	case is(clonev1.ConditionReady, corev1.ConditionTrue):
		return machineclone.Succeeded
	case c.Status.Phase == clonev1.Failed && is(clonev1.ConditionProgressing, corev1.ConditionFalse):
		return machineclone.Failed
	}
	return machineclone.NotOver
}
