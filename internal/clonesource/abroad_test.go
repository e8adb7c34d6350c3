package clonesource

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/names"
)

// TestMoveNamespace: whatever namespace a claim names, its source is the same before and after, and an API server without the gate keeps it.
func TestMoveNamespace(t *testing.T) {
	cdi, other := cdiv1.SchemeGroupVersion.Group, "snapshot.storage.k8s.io"
	for name, c := range map[string]struct {
		group, kind string
		namespace   *string
		annotated   string
		moved       bool
		want        string // namespace of the source
		field       string // dataSourceRef.namespace afterwards
	}{
		"another namespace":                {group: cdi, kind: "VolumeCloneSource", namespace: ptr.To("golden"), moved: true, want: "golden"},
		"its own":                          {group: cdi, kind: "VolumeImportSource", namespace: ptr.To("team"), moved: true, want: "team"},
		"its own, and an old annotation":   {group: cdi, kind: "VolumeImportSource", namespace: ptr.To("team"), annotated: "golden", moved: true, want: "team"},
		"an empty one":                     {group: cdi, kind: "VolumeUploadSource", namespace: ptr.To(""), moved: true, want: "team"},
		"none":                             {group: cdi, kind: "VolumeCloneSource", want: "team"},
		"an annotation":                    {group: cdi, kind: "VolumeCloneSource", annotated: "golden", want: "golden"},
		"the field wins":                   {group: cdi, kind: "VolumeCloneSource", namespace: ptr.To("a"), annotated: "b", moved: true, want: "a"},
		"another kind":                     {group: other, kind: "VolumeSnapshot", namespace: ptr.To("golden"), want: "golden", field: "golden"},
		"another kind with our annotation": {group: other, kind: "VolumeSnapshot", annotated: "golden", want: "team"},
	} {
		t.Run(name, func(t *testing.T) {
			it := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "disk"}, Spec: corev1.PersistentVolumeClaimSpec{
				DataSourceRef: &corev1.TypedObjectReference{APIGroup: &c.group, Kind: c.kind, Name: "fedora", Namespace: c.namespace}}}
			if c.annotated != "" {
				it.Annotations = map[string]string{names.SourceNamespace: c.annotated}
			}
			template := it.Spec.DataSourceRef
			if moved := MoveNamespace(it); moved != c.moved {
				t.Errorf("moved: %v", moved)
			}
			at, named := OfClaim(it)
			if !named || at.Namespace != c.want || at.Name != "fedora" || at.Kind != c.kind {
				t.Errorf("its source is %+v", at)
			}
			if field := ptr.Deref(it.Spec.DataSourceRef.Namespace, ""); field != c.field {
				t.Errorf("dataSourceRef.namespace is %q", field)
			}
			if ptr.Deref(template.Namespace, "") != ptr.Deref(c.namespace, "") {
				t.Error("the template that the claim was made of was changed")
			}
		})
	}
}
