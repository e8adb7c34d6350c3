package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/pkg/claim"
)

// complete fills in a claim that is labelled for it. The API server asks before it validates, so what it would refuse
// (no access mode, volume mode FromStorageProfile) is mended in time; a size the user wrote is not touched, because
// applying the same file again would then mean to shrink the claim.
func (l *lookup) complete(ctx context.Context, req admission.Request) admission.Response {
	pvc, err := decode[corev1.PersistentVolumeClaim](req.Object.Raw)
	if err != nil || pvc == nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the claim to complete: %w", err))
	}
	if req.Operation == admissionv1.Update {
		return keepFilled(req, pvc)
	}
	settings, err := l.settings.Settings(ctx)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if !settings.CompleteClaims {
		return admission.Allowed("")
	}
	storage, err := l.storage(ctx)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	storage.Overhead = &settings.Overhead
	pvc.Namespace = req.Namespace
	request := claim.FromPVC(&pvc.Spec)
	request.Archive = pvc.Annotations[names.ContentType] == string(cdiv1.DataVolumeArchive)
	if request.Source, err = clonesource.Measure(ctx, cluster.Reads(l.objects.Live), pvc); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	result, err := claim.Complete(request, storage)
	var lack *claim.Error
	if errors.As(err, &lack) {
		var c causes
		c.invalid(specPath, "%s; %s", lack.Text, lack.Advice)
		return c.response()
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.Patched("", patches(result)...)
}

// keepFilled serves a claim that is applied again as it was written: it keeps the completed fields, which are immutable, where the
// claim says "from the profile" or a size of "0".
func keepFilled(req admission.Request, after *corev1.PersistentVolumeClaim) admission.Response {
	before, err := decode[corev1.PersistentVolumeClaim](req.OldObject.Raw)
	if err != nil || before == nil || before.Spec.VolumeMode == nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the claim as it was: %w", err))
	}
	patch := []jsonpatch.Operation{jsonpatch.NewOperation("add", "/spec/volumeMode", *before.Spec.VolumeMode)}
	if size, said := after.Spec.Resources.Requests[corev1.ResourceStorage]; said && size.IsZero() {
		kept := before.Spec.Resources.Requests[corev1.ResourceStorage]
		patch = append(patch, jsonpatch.NewOperation("add", "/spec/resources/requests/storage", kept.String()))
	}
	return admission.Patched("", patch...)
}

// patches states the filled fields and no others.
func patches(r claim.Result) []jsonpatch.Operation {
	var out []jsonpatch.Operation
	for _, f := range r.Filled {
		switch f.Field {
		case "storageClassName":
			out = append(out, jsonpatch.NewOperation("add", "/spec/storageClassName", *r.Spec.StorageClassName))
		case "volumeMode":
			out = append(out, jsonpatch.NewOperation("add", "/spec/volumeMode", *r.Spec.VolumeMode))
		case "accessModes":
			out = append(out, jsonpatch.NewOperation("add", "/spec/accessModes", r.Spec.AccessModes))
		case "resources.requests.storage":
			out = append(out, jsonpatch.NewOperation("add", "/spec/resources", r.Spec.Resources))
		}
	}
	return out
}
