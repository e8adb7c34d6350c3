package admission

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/names"
)

// moveNamespace moves the namespace of one of our sources from a claim's dataSourceRef to an annotation. Mutating webhooks see a
// claim as it was sent. After them, an API server without the feature gate CrossNamespaceVolumeDataSource drops the whole reference, and the claim
// looks like one that asks for an empty volume.
//
// No right is checked here: whether the other namespace grants the source is asked each time that something is read from it.
func moveNamespace(_ context.Context, req admission.Request) admission.Response {
	pvc, err := decode[corev1.PersistentVolumeClaim](req.Object.Raw)
	if err != nil || pvc == nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the claim with a source in another namespace: %w", err))
	}
	pvc.Namespace = req.Namespace
	had := pvc.Annotations != nil
	_, said := pvc.Annotations[names.SourceNamespace]
	if !clonesource.MoveNamespace(pvc) {
		return admission.Allowed("")
	}
	patch := []jsonpatch.Operation{jsonpatch.NewOperation("remove", "/spec/dataSourceRef/namespace", nil)}
	key := "/metadata/annotations/" + strings.ReplaceAll(names.SourceNamespace, "/", "~1")
	switch space := pvc.Annotations[names.SourceNamespace]; {
	case space == "" && said:
		patch = append(patch, jsonpatch.NewOperation("remove", key, nil))
	case space == "":
	case !had:
		patch = append(patch, jsonpatch.NewOperation("add", "/metadata/annotations", pvc.Annotations))
	default:
		patch = append(patch, jsonpatch.NewOperation("add", key, space))
	}
	return admission.Patched("", patch...)
}
