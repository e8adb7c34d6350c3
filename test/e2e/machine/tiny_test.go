//go:build e2e

package machine

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// ask adds requests to the machine as the aggregated API does.
func ask(y *fixture.Machines, vm *kubevirt.VirtualMachine, change func(*kubevirt.VirtualMachineStatus)) {
	y.T.Helper()
	y.Wait("the request to be written", fixture.Patience, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(vm), vm); err != nil {
			return false, err.Error()
		}
		next := vm.DeepCopy()
		change(&next.Status)
		err := y.Kube.Status().Patch(ctx, next, client.MergeFromWithOptions(vm, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
}
