package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Operation is one step of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Unchanged returns the step that makes a patch fail with a conflict if obj is not any more as it was read.
func Unchanged(obj client.Object) Operation {
	return Operation{Op: "replace", Path: "/metadata/resourceVersion", Value: obj.GetResourceVersion()}
}

// Patch carries out another client's request on an object that it owns: Berth owns none of the fields afterwards. All of the
// steps are made or none.
func (w *Writer) Patch(ctx context.Context, obj client.Object, steps ...Operation) error {
	body, err := json.Marshal(steps)
	if err != nil {
		return fmt.Errorf("write a patch of %s: %w", w.name(obj), err)
	}
	if err := w.client.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, body)); err != nil {
		return fmt.Errorf("patch %s: %w", w.name(obj), err)
	}
	return nil
}

// PatchStatus is Patch for the status subresource.
func (w *Writer) PatchStatus(ctx context.Context, obj client.Object, steps ...Operation) error {
	body, err := json.Marshal(steps)
	if err != nil {
		return fmt.Errorf("write a patch of %s: %w", w.name(obj), err)
	}
	if err := w.client.Status().Patch(ctx, obj, client.RawPatch(types.JSONPatchType, body)); err != nil {
		return fmt.Errorf("patch the status of %s: %w", w.name(obj), err)
	}
	return nil
}
