//go:build apiserver

package apiserver

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestExportVersions: clients that ask for export.kubevirt.io/v1 and those that ask for v1beta1 have the same exports.
func TestExportVersions(t *testing.T) {
	export := func(version, name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "export.kubevirt.io/" + version, "kind": "VirtualMachineExport",
			"metadata": map[string]any{"namespace": "default", "name": name}}}
	}
	for made, asked := range map[string]string{"v1": "v1beta1", "v1beta1": "v1"} {
		e := export(made, "made-by-"+made)
		e.Object["spec"] = map[string]any{"ttlDuration": "1h0m0s", "source": map[string]any{"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "disk"}}
		create(t, admin, e)
		got := export(asked, e.GetName())
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(e), got); err != nil {
			t.Fatal(err)
		}
		if name, _, _ := unstructured.NestedString(got.Object, "spec", "source", "name"); name != "disk" || got.GetUID() != e.GetUID() || got.GetAPIVersion() != "export.kubevirt.io/"+asked {
			t.Errorf("made as %s, it is %v", made, got.Object)
		}
	}
}
