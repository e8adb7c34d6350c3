package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Change writes the difference between an object as it was read and as it should be, where the fields are not ours alone: a user's
// spec that a request changes. It returns a conflict if the object was written since.
func (w *Writer) Change(ctx context.Context, read, next client.Object) error {
	if err := w.client.Patch(ctx, next, sinceRead(read), Owner); err != nil {
		return fmt.Errorf("change %s: %w", w.name(next), err)
	}
	return nil
}

// ChangeStatus is Change for the status subresource: it takes requests out that others put in.
func (w *Writer) ChangeStatus(ctx context.Context, read, next client.Object) error {
	if err := w.client.Status().Patch(ctx, next, sinceRead(read), Owner); err != nil {
		return fmt.Errorf("change status of %s: %w", w.name(next), err)
	}
	return nil
}

func sinceRead(read client.Object) client.Patch {
	return client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
}

// grace returns the least time a pod is given: with none, the API server drops the pod at once, and what runs in it may still be
// writing when the next pod opens the same disk.
func grace(seconds int64) int64 { return max(seconds, 1) }

// Update writes the whole object. It returns a conflict if the object was written since it was read.
func (w *Writer) Update(ctx context.Context, obj client.Object) error {
	if err := w.client.Update(ctx, obj, Owner); err != nil {
		return fmt.Errorf("update %s: %w", w.name(obj), err)
	}
	return nil
}

// Try is a dry run of Update: it returns the error of the server, from the schema, the rules or the webhooks.
func (w *Writer) Try(ctx context.Context, obj client.Object) error {
	if err := w.client.Update(ctx, obj, Owner, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
		return fmt.Errorf("try %s: %w", w.name(obj), err)
	}
	return nil
}

// CreateNew is Create that is refused if there is an object of the name.
func (w *Writer) CreateNew(ctx context.Context, obj client.Object) error {
	if err := w.KeepsSource(ctx, obj); err != nil {
		return err
	}
	if err := w.client.Create(ctx, obj, Owner); err != nil {
		return fmt.Errorf("create %s: %w", w.name(obj), err)
	}
	return nil
}

// DeleteUnchanged deletes the object only if it has not been written since it was read; otherwise it is refused with a conflict.
func (w *Writer) DeleteUnchanged(ctx context.Context, obj client.Object) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	err := w.client.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", w.name(obj), err)
	}
	return nil
}

// DeleteWithin is Delete for a pod that is given another grace period than its own, a second at least.
func (w *Writer) DeleteWithin(ctx context.Context, obj client.Object, seconds int64) error {
	uid := obj.GetUID()
	err := w.client.Delete(ctx, obj, client.Preconditions{UID: &uid}, client.GracePeriodSeconds(grace(seconds)))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", w.name(obj), err)
	}
	return nil
}
