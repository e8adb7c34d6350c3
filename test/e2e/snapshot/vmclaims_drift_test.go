//go:build e2e

package snapshot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestExamplesDoNotDrift applies every example as a GitOps tool does, waits for the controllers, and applies it again: no other
// client has changed a field of it, and nothing changes.
func TestExamplesDoNotDrift(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	files, err := filepath.Glob("../../../examples/*.yaml")
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
		first := y.Apply(string(text))
		y.Wait("every machine of "+name+" to have been looked at", fixture.Patience, func(ctx context.Context) (bool, string) {
			var all kubevirt.VirtualMachineList
			if err := y.Kube.List(ctx, &all, client.InNamespace(y.Namespace)); err != nil {
				return false, err.Error()
			}
			for _, vm := range all.Items {
				if vm.Status.ObservedGeneration != vm.Generation {
					return false, vm.Name
				}
			}
			return true, ""
		})
		if again := y.Apply(string(text)); fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("%s applied again: generations were %v and are %v", name, first, again)
		}
		y.DeleteApplied(string(text)) // the next example may have an object of the same name
	}
}

// appliesAnywhere: an example that is for `kubectl create` is another one each time, and one takes its size from a golden
// image that this cluster does not have.
func appliesAnywhere(name, text string) bool {
	return !strings.Contains(text, "generateName") && name != "claim-completed.yaml"
}
