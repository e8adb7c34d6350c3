package machine

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// migrationsAbout brings back the migrations of an instance that have not ended.
func (r *Controllers) migrationsAbout(name func(client.Object) string) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		if name(obj) == "" {
			return nil
		}
		all, err := r.Read.MigrationsOf(ctx, obj.GetNamespace(), name(obj))
		if err != nil {
			log.FromContext(ctx).Error(err, "find the migrations of an instance")
		}
		var due []reconcile.Request
		for i := range all {
			if !all[i].Ended() {
				due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
			}
		}
		return due
	}
}
