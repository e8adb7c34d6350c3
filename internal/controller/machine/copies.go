package machine

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
)

// awaiting brings back the instances that wait for a usage type when a class changes.
func (r *Controllers) awaiting() handler.EventHandler {
	return r.instancesThat(func(i *kubevirt.VirtualMachineInstance) bool {
		return i.Status.Reason == string(state.UsageTypeMissing)
	})
}

// instancesThat brings back those whose status is such.
func (r *Controllers) instancesThat(wait func(*kubevirt.VirtualMachineInstance) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		var list kubevirt.VirtualMachineInstanceList
		if err := r.Read.Cached.List(ctx, &list); err != nil {
			log.FromContext(ctx).Error(err, "list the instances that wait")
			return nil
		}
		var due []reconcile.Request
		for i := range list.Items {
			if o := &list.Items[i]; wait(o) {
				due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
			}
		}
		return due
	})
}
