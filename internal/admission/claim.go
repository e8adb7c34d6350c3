package admission

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	order "github.com/berth-vm/berth/internal/claimorder"
)

// checkClaim checks what a claim's annotations order: an upload or an import into it. The annotations of a claim that is full are
// not checked.
func checkClaim(_ context.Context, before, after *corev1.PersistentVolumeClaim) (causes, error) {
	var c causes
	if after.DeletionTimestamp != nil || order.Complete(after) || before != nil && maps.Equal(before.Annotations, after.Annotations) {
		return nil, nil
	}
	at := field.NewPath("metadata", "annotations")
	spec, err := order.Of(after)
	switch {
	case err != nil:
		c.invalid(at, "%v", err)
	case spec != nil && spec.Source.Upload == nil:
		checkSource(spec.Source, spec.ContentType == cdiv1.DataVolumeArchive, at.Key(order.Endpoint), &c)
	}
	return c, nil
}
