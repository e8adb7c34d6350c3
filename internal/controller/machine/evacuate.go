package machine

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// allInstances brings back every instance: what holds for all of them has changed.
func (r *Controllers) allInstances(ctx context.Context, _ client.Object) []reconcile.Request {
	var list kubevirt.VirtualMachineInstanceList
	if err := r.Read.Cached.List(ctx, &list); err != nil {
		log.FromContext(ctx).Error(err, "list instances")
	}
	var due []reconcile.Request
	for i := range list.Items {
		due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return due
}
