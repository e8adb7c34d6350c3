package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrSourceDropped is returned for a claim that the API server would make without the data source that it was sent with.
var ErrSourceDropped = errors.New("the API server drops its data source")

// KeepsSource returns ErrSourceDropped if the API server would drop the data source of a claim. Without the gate
// CrossNamespaceVolumeDataSource it silently drops every dataSourceRef that names a namespace, and the claim would be bound to an
// empty volume. So such a claim is created as a dry run first, and the result is compared with the request. To check after the
// creation would be too late: this process may end in between, and the claim be bound.
func (w *Writer) KeepsSource(ctx context.Context, obj client.Object) error {
	c, is := obj.(*corev1.PersistentVolumeClaim)
	if !is || c.Spec.DataSourceRef == nil || ptr.Deref(c.Spec.DataSourceRef.Namespace, "") == "" {
		return nil
	}
	tried, ref := c.DeepCopy(), c.Spec.DataSourceRef
	err := w.client.Create(ctx, tried, Owner, client.DryRunAll)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil // nothing is going to be made
	case err != nil:
		return fmt.Errorf("try %s: %w", w.name(obj), leaving(err))
	case tried.Spec.DataSourceRef == nil:
		return fmt.Errorf("%w: %s %s is in namespace %s, and this cluster does not have the feature gate CrossNamespaceVolumeDataSource; "+
			"use a source in namespace %s", ErrSourceDropped, ref.Kind, ref.Name, *ref.Namespace, c.Namespace)
	}
	return nil
}
