package diskaccess

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/render"
)

// A worker is created with a scheduling gate (render.DiskGate), so that it has a UID and does not run. Admit enters it among the holders
// of its disks and takes the gate away. internal/controller/podend releases it when it has ended. A crash between any two of these leaves a pod
// that does not run, or a record of a pod that is there.

// Of returns the disks that a worker has: those of its claims that are bound. What a claim that is not bound will lead to is not known yet.
func (r *Records) Of(ctx context.Context, worker *corev1.Pod) ([]Disk, error) {
	var out []Disk
	for _, v := range worker.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, worker.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return nil, err
		}
		pv, err := r.boundTo(ctx, claim)
		if err != nil {
			return nil, err
		}
		if pv == nil {
			continue
		}
		d := Disk{ID: identity.Volume(pv), Servers: netdisk.Servers(pv), Mode: accessv1.WriteExclusive, Claim: claim.UID, Use: accessv1.UseFill, Early: render.BootsEarly(worker)}
		if role := worker.Labels[render.LabelComponent]; role == render.RoleBackup || role == render.RoleBackupRemoval {
			d.Use = accessv1.UseBackup
		}
		if render.OnlyReads(worker, claim.Name) {
			d.Mode, d.Use, d.Early = accessv1.ReadShared, accessv1.UseClone, false
			switch worker.Labels[render.LabelComponent] {
			case render.RoleExport:
				d.Use = accessv1.UseExport
			case render.RoleBackup:
				d.Use = accessv1.UseBackUp
			}
		}
		out = append(out, d)
	}
	return out, nil
}

// boundTo returns the volume that a claim is bound to; nil: it is not bound.
func (r *Records) boundTo(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if claim == nil || claim.Status.Phase != corev1.ClaimBound {
		return nil, nil
	}
	return cluster.VolumeOf(ctx, r.reader, claim)
}

// Gated reports whether a worker waits to be admitted.
func Gated(worker *corev1.Pod) bool {
	return slices.ContainsFunc(worker.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == render.DiskGate })
}

// Admitted reports whether a worker is recorded, with its node, as a holder of all its disks, and need not wait any more; as the
// cache knows.
func (r *Records) Admitted(ctx context.Context, worker *corev1.Pod) (bool, error) {
	if Gated(worker) {
		return false, nil
	}
	disks, err := r.Of(ctx, worker)
	if err != nil {
		return false, err
	}
	for _, d := range disks {
		holders, err := r.Holders(ctx, d.ID)
		if err != nil {
			return false, err
		}
		mine := func(h accessv1.Holder) bool { return h.PodUID == worker.UID && h.Node == worker.Spec.NodeName }
		if !slices.ContainsFunc(holders, mine) {
			return false, nil
		}
	}
	return true, nil
}

// Admit records a worker as a holder of its disks and lets it be scheduled. It returns cluster.ErrStale if the worker or a record
// is not as the cache has it, and if another pod has one of the disks: the next reconcile reports which. It may be repeated.
func (r *Records) Admit(ctx context.Context, worker *corev1.Pod) error {
	now, err := cluster.Get[corev1.Pod](ctx, r.live, worker.Namespace, worker.Name)
	if err != nil {
		return err
	}
	if now == nil || now.UID != worker.UID || now.DeletionTimestamp != nil {
		return cluster.ErrStale
	}
	if !slices.Contains(now.Finalizers, render.WorkerEnd) { // made by an earlier version, or removed by a user
		next := now.DeepCopy()
		next.Finalizers = append(next.Finalizers, render.WorkerEnd)
		if err := r.cluster.Change(ctx, now, next); err != nil {
			return stale(err)
		}
		now = next
	}
	disks, err := r.Of(ctx, now)
	if err != nil {
		return err
	}
	if err := r.Take(ctx, Taker{Pod: now, Finalizer: render.WorkerEnd, UID: types.UID(now.Labels[render.LabelVolumeUID])}, disks); err != nil {
		return stale(err)
	}
	if !Gated(now) {
		return nil
	}
	next := now.DeepCopy()
	next.Spec.SchedulingGates = slices.DeleteFunc(next.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == render.DiskGate })
	return stale(r.cluster.Change(ctx, now, next))
}

func stale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w: %w", cluster.ErrStale, err)
	}
	return err
}

// ReleaseEnded frees the disks of a worker that has ended, and lets it go.
func (r *Records) ReleaseEnded(ctx context.Context, worker *corev1.Pod, letGo func() error) error {
	return r.Release(ctx, worker.UID, nil, letGo)
}

// Blocker returns a holder that prevents others from having the disk of a claim in a mode, from the cache; nil if there is none,
// or if the claim is not bound. Pods in except do not count.
func (r *Records) Blocker(ctx context.Context, claim *corev1.PersistentVolumeClaim, wanted accessv1.Holder, except ...*corev1.Pod) (*accessv1.Holder, error) {
	pv, err := r.boundTo(ctx, claim)
	if err != nil || pv == nil {
		return nil, err
	}
	holders, err := r.Holders(ctx, identity.Volume(pv))
	if err != nil {
		return nil, err
	}
	wanted.ClaimUID, wanted.Namespace, wanted.Servers = claim.UID, claim.Namespace, netdisk.Servers(pv)
	for i := range holders {
		h := &holders[i]
		own := func(p *corev1.Pod) bool { return p != nil && p.UID == h.PodUID }
		if slices.ContainsFunc(except, own) {
			continue
		}
		if out, err := r.KeepsOut(ctx, *h, wanted); err != nil || out {
			return h, err
		}
	}
	return nil, nil
}

// Who names a holder for a person of a namespace. What is in another namespace is not theirs to know.
func Who(h *accessv1.Holder, namespace string) string {
	switch {
	case h.Namespace != namespace:
		return fmt.Sprintf("a pod of another namespace has it %s", h.Mode)
	case h.Machine != "":
		return fmt.Sprintf("machine %s has it %s in pod %s", h.Machine, h.Mode, h.Pod)
	}
	return fmt.Sprintf("pod %s %s", h.Pod, UsedFor(h.Use))
}

// UsedFor returns what a worker does with a disk.
func UsedFor(u accessv1.Use) string {
	switch u {
	case accessv1.UseFill:
		return "fills it"
	case accessv1.UseClone:
		return "reads it to make a clone"
	case accessv1.UseExport:
		return "reads it for an export"
	case accessv1.UseBackup:
		return "writes a backup to it"
	case accessv1.UseBackUp:
		return "reads it for a backup"
	}
	return "has it"
}

// HolderOf returns what is recorded of a pod as a holder of the disk of a claim; nil: it is none. from is a cache, or the server.
func (r *Records) HolderOf(ctx context.Context, from client.Reader, claim *corev1.PersistentVolumeClaim, pod types.UID) (*accessv1.Holder, error) {
	pv, err := r.boundTo(ctx, claim)
	if err != nil || pv == nil {
		return nil, err
	}
	holders, err := r.holders(ctx, from, identity.Volume(pv))
	if at := slices.IndexFunc(holders, func(h accessv1.Holder) bool { return h.PodUID == pod }); at >= 0 {
		return &holders[at], err
	}
	return nil, err
}
