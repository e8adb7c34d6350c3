package fill

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
)

// Withdraw ends the filling of a claim that was ordered for its own sake and is not any more: its worker would keep the claim from
// being deleted, and would still take what is sent to it. One that is done and to be retained stays.
func (e *Engine) Withdraw(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	s := &Seen{order: OfClaim(c, cdiv1.DataVolumeSpec{}, cluster.Marks{}), claim: c}
	for _, role := range []string{render.RoleImport, render.RoleUpload} {
		worker, err := cluster.Get[corev1.Pod](ctx, e.reader, c.Namespace, render.WorkerName(role, c.Name))
		if err != nil {
			return err
		}
		if worker == nil || worker.DeletionTimestamp != nil || !metav1.IsControlledBy(worker, c) {
			continue
		}
		if worker.Status.Phase == corev1.PodSucceeded && c.Annotations[names.Retain] == "true" {
			continue
		}
		if role == render.RoleUpload {
			if err := e.uploads.Revoke(ctx, s.uploading(worker.Name)); err != nil {
				return err
			}
		}
		if err := e.cluster.Delete(ctx, worker); err != nil {
			return err
		}
	}
	return nil
}

// Release removes our finalizer from the order's owner, once no object made for it is left in other namespaces. The other objects
// are owned by it and deleted with it.
func (e *Engine) Release(ctx context.Context, o Order) error {
	return e.clones.Release(ctx, o.cloning())
}

// Sweep removes what is left in other namespaces of a volume or claim that is gone.
func (e *Engine) Sweep(ctx context.Context, gone types.NamespacedName) error {
	return e.clones.Sweep(ctx, gone)
}

// Discard removes all objects that were made for an order, the claim last, because its annotations record the others.
func (e *Engine) Discard(ctx context.Context, o Order) error {
	for _, role := range []string{render.RoleImport, render.RoleUpload} {
		worker, err := cluster.Owned[corev1.Pod](ctx, e.reader, o.Owner.UID, o.Namespace, render.WorkerName(role, o.Name))
		if err != nil {
			return err
		}
		kept := o.Annotations[names.Retain] == "true" && worker != nil && worker.Status.Phase == corev1.PodSucceeded
		if worker == nil || worker.DeletionTimestamp != nil || kept {
			continue
		}
		if err := e.cluster.Delete(ctx, worker); err != nil {
			return err
		}
	}
	claim, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, e.reader, o.Namespace, o.Name)
	if err != nil {
		return err
	}
	if claim != nil && !metav1.IsControlledBy(claim, o.For) {
		claim = nil
	}
	if err := e.clones.Discard(ctx, o.cloning(), claim); err != nil || claim == nil || claim.DeletionTimestamp != nil {
		return err
	}
	return e.cluster.Delete(ctx, claim)
}
