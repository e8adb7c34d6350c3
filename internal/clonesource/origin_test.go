package clonesource

import (
	"context"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

const like = "instancetype.kubevirt.io/default-preference"

// shelf has a claim, a snapshot of it, and a VolumeCloneSource for each.
func shelf(t *testing.T) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.PersistentVolumeClaim{}, &corev1.Namespace{})
	s.AddKnownTypes(cdiv1.SchemeGroupVersion, &cdiv1.VolumeCloneSource{}, &cdiv1.DataSource{})
	if err := volumesnapshot.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	s.AddKnownTypeWithName(Grant, &unstructured.Unstructured{})
	s.AddKnownTypeWithName(Grant.GroupVersion().WithKind("ReferenceGrantList"), &unstructured.UnstructuredList{})
	golden := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "fedora", Labels: map[string]string{like: "fedora"}},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast"), VolumeMode: ptr.To(corev1.PersistentVolumeBlock)},
		Status:     corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}},
	}
	unbound := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "unbound"}}
	taken := &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "monday"},
		Status: &snapshotv1.VolumeSnapshotStatus{RestoreSize: ptr.To(resource.MustParse("6Gi"))}}
	source := func(name, kind, group, of string) *cdiv1.VolumeCloneSource {
		return &cdiv1.VolumeCloneSource{
			ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: name},
			Spec:       cdiv1.VolumeCloneSourceSpec{Source: corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kind, Name: of}},
		}
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(golden, unbound, taken, source("of-claim", "PersistentVolumeClaim", "", "fedora"),
		source("of-snapshot", "VolumeSnapshot", volumesnapshot.Group, "monday"), source("of-nothing", "PersistentVolumeClaim", "", "none"),
		&cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "os", Labels: map[string]string{like: "linux"}}},
		standing("golden", "alias"), standing("team", "forged")).Build()
}

// standing returns a DataSource of any namespace that stands for the claim.
func standing(namespace, name string) *cdiv1.DataSource {
	return &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"own": "yes"}},
		Spec: cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: "fedora"}}}}
}

func from(group, kind, name string) *corev1.PersistentVolumeClaimSpec {
	return &corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{
		APIGroup: &group, Kind: kind, Name: name, Namespace: ptr.To("golden")}}
}

func named(namespace string, spec *corev1.PersistentVolumeClaimSpec) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "disk"}, Spec: *spec}
}

func TestMeasure(t *testing.T) {
	cdi := cdiv1.SchemeGroupVersion.Group
	for _, c := range []struct {
		name string
		spec *corev1.PersistentVolumeClaimSpec
		want string // capacity, volume mode
	}{
		{"a claim", from("", "PersistentVolumeClaim", "fedora"), "5Gi Block"},
		{"a claim in the same namespace", &corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "fedora"}}, "5Gi Block"},
		{"through a source", from(cdi, "VolumeCloneSource", "of-claim"), "5Gi Block"},
		{"a snapshot", from(volumesnapshot.Group, "VolumeSnapshot", "monday"), "6Gi Filesystem"},
		{"a snapshot through a source", from(cdi, "VolumeCloneSource", "of-snapshot"), "6Gi Filesystem"},
		{"a claim that is not bound", from("", "PersistentVolumeClaim", "unbound"), ""},
		{"a claim that is not there", from("", "PersistentVolumeClaim", "none"), ""},
		{"a source of nothing", from(cdi, "VolumeCloneSource", "of-nothing"), ""},
		{"a source that is not there", from(cdi, "VolumeCloneSource", "none"), ""},
		{"a DataSource", from(cdi, "DataSource", "alias"), "5Gi Block"},
		{"a DataSource of nothing", from(cdi, "DataSource", "os"), ""},
		{"a DataSource that is not there", from(cdi, "DataSource", "none"), ""},
		{"an import", from(cdi, "VolumeImportSource", "image"), ""},
		{"somebody else's", from("example.com", "Image", "a"), ""},
		{"none", &corev1.PersistentVolumeClaimSpec{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Measure(context.Background(), cluster.Reads(shelf(t)), named("golden", c.spec))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if s != nil {
				got = s.Capacity.String() + " " + string(s.VolumeMode)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestGranted: what another namespace has says nothing of itself, neither its size nor its labels, before it is granted.
func TestGranted(t *testing.T) {
	ctx, c := context.Background(), shelf(t)
	spec := from(cdiv1.SchemeGroupVersion.Group, "VolumeCloneSource", "of-claim")
	seen := func(namespace string) bool {
		t.Helper()
		s, err := Measure(ctx, cluster.Reads(c), named(namespace, spec))
		if err != nil {
			t.Fatal(err)
		}
		l, err := Labels(ctx, cluster.Reads(c), namespace, spec)
		if err != nil || (s != nil) != (l != nil) {
			t.Fatalf("size %v, labels %v, %v", s, l, err)
		}
		return s != nil
	}
	if seen("team") {
		t.Error("seen without a grant")
	}
	grant := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"from": []any{map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": "team"}},
		"to":   []any{map[string]any{"group": cdiv1.SchemeGroupVersion.Group, "kind": "VolumeCloneSource"}},
	}}}
	grant.SetGroupVersionKind(Grant)
	grant.SetNamespace("golden")
	grant.SetName("team")
	if err := c.Create(ctx, grant); err != nil {
		t.Fatal(err)
	}
	if !seen("team") || seen("others") {
		t.Error("a grant for one namespace is for that one")
	}
}

// TestForgedDataSource: a DataSource that stands for a claim of another namespace says nothing of it, neither its size nor its labels, before
// that namespace has granted it.
func TestForgedDataSource(t *testing.T) {
	ctx, c := context.Background(), shelf(t)
	spec := from(cdiv1.SchemeGroupVersion.Group, "DataSource", "forged")
	spec.DataSourceRef.Namespace = nil
	s, err := Measure(ctx, cluster.Reads(c), named("team", spec))
	if s != nil || err != nil {
		t.Errorf("its size is %v, %v", s, err)
	}
	labels, err := Labels(ctx, cluster.Reads(c), "team", spec)
	if err != nil || labels[like] != "" || labels["own"] != "yes" {
		t.Errorf("its labels are %v, %v", labels, err)
	}
}

// TestImageLibrary: a namespace that has the label of a library of images may use its DataSources and VolumeCloneSources, if the library says that it is
// one; and nothing else of it.
func TestImageLibrary(t *testing.T) {
	cdi := cdiv1.SchemeGroupVersion
	uses, is := map[string]string{names.UsesImages + "golden": "allowed"}, map[string]string{names.ImageLibrary: "true"}
	for name, c := range map[string]struct {
		here, library map[string]string
		kind          schema.GroupVersionKind
		granted       bool
	}{
		"a DataSource":                           {uses, is, cdi.WithKind("DataSource"), true},
		"a VolumeCloneSource":                    {uses, is, cdi.WithKind("VolumeCloneSource"), true},
		"an import":                              {uses, is, cdi.WithKind("VolumeImportSource"), false},
		"a claim":                                {uses, is, Claim, false},
		"a snapshot":                             {uses, is, Snapshot, false},
		"the label of another library":           {map[string]string{names.UsesImages + "other": "allowed"}, is, cdi.WithKind("DataSource"), false},
		"another value":                          {map[string]string{names.UsesImages + "golden": "true"}, is, cdi.WithKind("DataSource"), false},
		"no label":                               {nil, is, cdi.WithKind("DataSource"), false},
		"a namespace that is no library":         {uses, nil, cdi.WithKind("DataSource"), false},
		"a namespace that says to be a library":  {is, is, cdi.WithKind("DataSource"), false},
		"a library that says it may use its own": {nil, uses, cdi.WithKind("DataSource"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := runtime.NewScheme()
			s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Namespace{})
			s.AddKnownTypeWithName(Grant.GroupVersion().WithKind("ReferenceGrantList"), &unstructured.UnstructuredList{})
			api := fake.NewClientBuilder().WithScheme(s).WithObjects(
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: c.here}},
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "golden", Labels: c.library}}).Build()
			granted, err := Granted(t.Context(), cluster.Reads(api), "team", At(c.kind, "golden", "fedora"))
			if granted != c.granted || err != nil {
				t.Errorf("granted %t, %v", granted, err)
			}
		})
	}
}

func TestLabels(t *testing.T) {
	ctx, c := context.Background(), shelf(t)
	if got, err := Labels(ctx, cluster.Reads(c), "golden", from(cdiv1.SchemeGroupVersion.Group, "VolumeCloneSource", "of-claim")); err != nil || got[like] != "fedora" {
		t.Errorf("through a source: %v, %v", got, err)
	}
	if got, err := Labels(ctx, cluster.Reads(c), "golden", from("example.com", "Image", "a")); err != nil || len(got) != 0 {
		t.Errorf("of somebody else's: %v, %v", got, err)
	}
	for name, spec := range map[string]*cdiv1.DataVolumeSpec{
		"linux":  {SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "os"}},
		"fedora": {Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: "fedora"}}},
		"":       {Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}},
	} {
		if got, err := VolumeLabels(ctx, cluster.Reads(c), "golden", spec); err != nil || got[like] != name {
			t.Errorf("of a volume: %v, %v, want %q", got, err, name)
		}
	}
}
