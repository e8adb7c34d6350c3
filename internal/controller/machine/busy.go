package machine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/names"
)

// busy is what else is being done with a machine; nil: nothing.
type busy struct {
	snapshot *string
	restore  *string
}

// observeBusy finds the snapshot and the restore that are going on.
func (r *Reconciler) observeBusy(ctx context.Context, w *whole) error {
	var snapshots snapshotv1.VirtualMachineSnapshotList
	if err := r.reader.List(ctx, &snapshots, client.InNamespace(w.vm.Namespace)); err != nil {
		return fmt.Errorf("list snapshots of machines: %w", err)
	}
	for i := range snapshots.Items {
		s := &snapshots.Items[i]
		over := s.Status.Phase == snapshotv1.Succeeded || s.Status.Phase == snapshotv1.Failed
		if s.Spec.Source.Name == w.vm.Name && !over && s.DeletionTimestamp == nil {
			w.busy.snapshot = &s.Name
		}
	}
	restore, err := restoreOf(ctx, r.reader, w.vm)
	if err == nil && restore != nil {
		w.busy.restore = &restore.Name
		w.lacks(machine.Restoring, "%s", restoreText(restore))
	}
	return err
}

// restoreText names a restore and says how far it is.
func restoreText(r *snapshotv1.VirtualMachineRestore) string {
	for _, c := range r.Status.Conditions {
		if c.Type == snapshotv1.ConditionProgressing && c.Message != "" {
			return fmt.Sprintf("VirtualMachineRestore %s: %s", r.Name, c.Message)
		}
	}
	return "VirtualMachineRestore " + r.Name
}

// restoring: the machine's disks are a restore's to make. The cache may not know yet of one that has just deleted a claim to
// make it again, or that has just made the machine.
func (r *Reconciler) restoring(ctx context.Context, w *whole) (bool, error) {
	restore, err := restoreOf(ctx, r.live, w.vm)
	return restore != nil, err
}

// restoreOf is the restore of the machine that is going on; nil if there is none. One that was deleted goes on as long as its finalizer
// is there: it may have replaced some of the machine's claims, and not all.
func restoreOf(ctx context.Context, c client.Reader, vm *kubevirt.VirtualMachine) (*snapshotv1.VirtualMachineRestore, error) {
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

// machineOfSnapshot and machineOfRestore bring back the machine they are about.
func machineOfSnapshot(_ context.Context, obj client.Object) []reconcile.Request {
	return machineNamed(obj, obj.(*snapshotv1.VirtualMachineSnapshot).Spec.Source.Name)
}

func machineOfRestore(_ context.Context, obj client.Object) []reconcile.Request {
	return machineNamed(obj, obj.(*snapshotv1.VirtualMachineRestore).Spec.Target.Name)
}

func machineNamed(beside client.Object, name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: beside.GetNamespace(), Name: name}}}
}

// lookAgain is when to look at a machine that lacks something nobody tells us about: a class, a clone's source, an
// instance type.
func (w *whole) lookAgain() time.Duration {
	if w.change != nil && len(w.change.Waiting) > 0 {
		return returnsAgain
	}
	if w.means == machine.Provided || w.means == machine.Restoring {
		return 0
	}
	return 5 * time.Second
}
