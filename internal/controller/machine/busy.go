package machine

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
)

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
