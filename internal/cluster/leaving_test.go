package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestSettle: what cannot be made because its namespace goes is no failure, and no refusal either; everything else is.
func TestSettle(t *testing.T) {
	gone := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "disk", errors.New("unable to create new content"))
	gone.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Message: "namespace team is being terminated"}}
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "disk", errors.New("exceeded quota"))
	for name, c := range map[string]struct {
		refusal error
		settled bool
	}{"its namespace goes": {gone, true}, "a quota": {quota, false}} {
		t.Run(name, func(t *testing.T) {
			w, base, _ := newWriter(t)
			w.client = interceptor.NewClient(base.(client.WithWatch), interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return c.refusal },
			})
			calls := 0
			r := Settle(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				calls++
				err := w.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "disk"}})
				if apierrors.IsForbidden(err) == c.settled {
					t.Errorf("the user would be told of %v", err)
				}
				return reconcile.Result{RequeueAfter: 1}, fmt.Errorf("CreateClaim: %w", err)
			}))
			result, err := r.Reconcile(t.Context(), reconcile.Request{})
			if calls != 1 || (err == nil) != c.settled || c.settled && !result.IsZero() {
				t.Errorf("%d calls, %v, %v", calls, result, err)
			}
		})
	}
	if got := leaving(&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusConflict}}); errors.Is(got, ErrNamespaceLeaving) {
		t.Error("not every error is about the namespace")
	}
}
