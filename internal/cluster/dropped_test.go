package cluster

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestSourceDropped: a claim is never made without the source that it was sent with.
func TestSourceDropped(t *testing.T) {
	for name, c := range map[string]struct {
		namespace *string
		drops     bool // the API server, as one without the gate does
		want      error
		made      bool
	}{
		"no namespace":           {drops: true, made: true},
		"a namespace, gate off":  {namespace: ptr.To("golden"), drops: true, want: ErrSourceDropped},
		"a namespace, gate on":   {namespace: ptr.To("golden"), made: true},
		"an empty one, gate off": {namespace: ptr.To(""), drops: true, made: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, api, _ := newWriter(t)
			w.client = interceptor.NewClient(api.(client.WithWatch), interceptor.Funcs{
				Create: func(ctx context.Context, c2 client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					if pvc := obj.(*corev1.PersistentVolumeClaim); c.drops && ptr.Deref(pvc.Spec.DataSourceRef.Namespace, "") != "" {
						pvc.Spec.DataSourceRef = nil
					}
					return c2.Create(ctx, obj, opts...)
				},
			})
			for verb, create := range map[string]func(context.Context, client.Object) error{"create": w.Create, "create-new": w.CreateNew} {
				pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: verb}, Spec: corev1.PersistentVolumeClaimSpec{
					DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Image", Name: "fedora", Namespace: c.namespace}}}
				if err := create(t.Context(), pvc); !errors.Is(err, c.want) {
					t.Errorf("%s: %v", verb, err)
				}
				there, err := Get[corev1.PersistentVolumeClaim](t.Context(), api, "team", verb)
				if err != nil || (there != nil) != c.made || there != nil && there.Spec.DataSourceRef == nil {
					t.Errorf("%s: there is %+v, %v", verb, there, err)
				}
			}
		})
	}
}
