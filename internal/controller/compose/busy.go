package compose

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/names"
)

// Busy describes another operation that is under way on a machine; nil: there is none.
type Busy struct {
	Snapshot *string
	Restore  *string
}

// observeBusy finds the snapshot and the restore that are under way.
func (r *Reader) observeBusy(ctx context.Context, w *Machine) error {
	var snapshots snapshotv1.VirtualMachineSnapshotList
	if err := r.Read.Cached.List(ctx, &snapshots, client.InNamespace(w.Object.Namespace)); err != nil {
		return fmt.Errorf("list snapshots of machines: %w", err)
	}
	for i := range snapshots.Items {
		s := &snapshots.Items[i]
		over := s.Status.Phase == snapshotv1.Succeeded || s.Status.Phase == snapshotv1.Failed
		if s.Spec.Source.Name == w.Object.Name && !over && s.DeletionTimestamp == nil {
			w.Busy.Snapshot = &s.Name
		}
	}
	restore, err := RestoreOf(ctx, r.Read.Cached, w.Object)
	if err == nil && restore != nil {
		w.Busy.Restore = &restore.Name
		w.lacks(machine.Restoring, "%s", RestoreText(restore))
	}
	return err
}

// RestoreText names a restore and its progress.
func RestoreText(r *snapshotv1.VirtualMachineRestore) string {
	for _, c := range r.Status.Conditions {
		if c.Type == snapshotv1.ConditionProgressing && c.Message != "" {
			return fmt.Sprintf("VirtualMachineRestore %s: %s", r.Name, c.Message)
		}
	}
	return "VirtualMachineRestore " + r.Name
}

// Restoring reports whether a restore makes the disks of the machine. It asks the server: the cache may not know yet of a restore that has just deleted a claim to
// make it again, or that has just made the machine.
func (r *Reader) Restoring(ctx context.Context, w *Machine) (bool, error) {
	restore, err := RestoreOf(ctx, r.Read.Live, w.Object)
	return restore != nil, err
}

// RestoreOf is the restore of the machine that is under way; nil if there is none. One that was deleted continues as long as its
// finalizer is there: it may have replaced some of the machine's claims, and not all.
func RestoreOf(ctx context.Context, c client.Reader, vm *kubevirt.VirtualMachine) (*snapshotv1.VirtualMachineRestore, error) {
	var restores snapshotv1.VirtualMachineRestoreList
	if err := c.List(ctx, &restores, client.InNamespace(vm.Namespace)); err != nil {
		return nil, fmt.Errorf("list restores of machines: %w", err)
	}
	for i := range restores.Items {
		s := &restores.Items[i]
		gone := s.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(s, names.RestoreFinalizer)
		if s.Spec.Target.Name == vm.Name && !gone && !over(s.Status.Conditions) {
			return s, nil
		}
	}
	return nil, nil
}

func over(conditions []snapshotv1.Condition) bool {
	for _, c := range conditions {
		if c.Type != snapshotv1.ConditionProgressing && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
