//go:build apiserver

package apiserver

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// create makes an object and has it deleted, and gone, when the test ends: there is no garbage collector here.
func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		o.SetFinalizers(nil)
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		_ = admin.Patch(ctx, o, patch)
		if err := client.IgnoreNotFound(admin.Delete(ctx, o, client.GracePeriodSeconds(0))); err != nil {
			t.Error(err)
		}
	})
}

func toJSON(t *testing.T, text string) []byte {
	t.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func asObject(content map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: content}
}
