//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// TestExamplesDoNotDrift applies every example as a GitOps tool does, lets the controllers have their say, and applies it
// again: nobody else has changed a field of it, and nothing changes.
func TestExamplesDoNotDrift(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		if !appliesAnywhere(name, string(text)) {
			continue
		}
		first := y.apply(string(text))
		y.Wait("every machine of "+name+" to have been looked at", patience, func(ctx context.Context) (bool, string) {
			var all kubevirt.VirtualMachineList
			if err := y.kube.List(ctx, &all, client.InNamespace(y.Namespace)); err != nil {
				return false, err.Error()
			}
			for _, vm := range all.Items {
				if vm.Status.ObservedGeneration != vm.Generation {
					return false, vm.Name
				}
			}
			return true, ""
		})
		if again := y.apply(string(text)); fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("%s applied again: generations were %v and are %v", name, first, again)
		}
		y.clear() // the next example may have a machine of the same name
	}
}

// appliesAnywhere: an example that is for `kubectl create` is another one each time, and one takes its size from a golden
// image that this cluster does not have.
func appliesAnywhere(name, text string) bool {
	return !strings.Contains(text, "generateName") && name != "claim-completed.yaml"
}

// clear deletes all machines and waits until they are gone.
func (y *yard) clear() {
	y.T.Helper()
	if err := y.kube.DeleteAllOf(y.Context(), &kubevirt.VirtualMachine{}, client.InNamespace(y.Namespace)); err != nil {
		y.T.Fatal(err)
	}
	y.Wait("the machines to be gone", boot, func(ctx context.Context) (bool, string) {
		var all kubevirt.VirtualMachineList
		err := y.kube.List(ctx, &all, client.InNamespace(y.Namespace))
		return err == nil && len(all.Items) == 0, fmt.Sprintf("%d left, %v", len(all.Items), err)
	})
}
