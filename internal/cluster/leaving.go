package cluster

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ErrNamespaceLeaving means that nothing is made in a namespace that is being deleted.
var ErrNamespaceLeaving = errors.New("its namespace is being deleted")

// leaving returns err, or ErrNamespaceLeaving if that is the only cause. The API server's own error looks like an ordinary
// refusal, which the user would be told about.
func leaving(err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return ErrNamespaceLeaving
	}
	return err
}

// Settle returns a reconciler that ignores errors in a namespace that is being deleted: its objects are deleted with the rest.
func Settle(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if errors.Is(err, ErrNamespaceLeaving) {
			log.FromContext(ctx).V(1).Info("left to the deletion of the namespace", "why", err.Error())
			return reconcile.Result{}, nil
		}
		return result, err
	})
}
