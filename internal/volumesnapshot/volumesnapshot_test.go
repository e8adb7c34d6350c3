package volumesnapshot

import (
	"context"
	"fmt"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func class(name, driver string, isDefault bool) Class {
	c := Class{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver}
	if isDefault {
		c.Annotations = map[string]string{annDefault: "true"}
	}
	return c
}

// shelf is a cluster with a profile, classes and a content.
type shelf struct {
	prefers string // the snapshot class of the profile of storage class fast; empty: there is no profile
	classes []Class
	content *Content
}

func (s shelf) Read(_ context.Context, _, name string, into runtime.Object) (bool, error) {
	switch o := into.(type) {
	case *cdiv1.StorageProfile:
		o.Status.SnapshotClass = &s.prefers
		return s.prefers != "" && name == "fast", nil
	case *Content:
		if s.content == nil || s.content.Name != name {
			return false, nil
		}
		*o = *s.content
		return true, nil
	}
	return false, fmt.Errorf("nobody has a %T", into)
}

func (s shelf) ReadAll(_ context.Context, _ string, _ map[string]string, into runtime.Object) error {
	into.(*ClassList).Items = s.classes
	return nil
}

// TestClassOf: what the administrator wrote into the StorageProfile counts before what the classes say of themselves, as long as
// the driver is the volume's.
func TestClassOf(t *testing.T) {
	two := []Class{class("b", "disks", false), class("a", "disks", false), class("other", "tape", true)}
	for name, row := range map[string]struct {
		prefers string
		classes []Class
		want    string
	}{
		"none":                              {},
		"none of the driver":                {classes: two[2:]},
		"the first by name":                 {classes: two, want: "a"},
		"the default one":                   {classes: append(two, class("z", "disks", true)), want: "z"},
		"the first default one":             {classes: append(two, class("z", "disks", true), class("y", "disks", true)), want: "y"},
		"the profile's":                     {prefers: "b", classes: append(two, class("z", "disks", true)), want: "b"},
		"the profile's of another driver":   {prefers: "other", classes: two, want: "a"},
		"the profile's, which is not there": {prefers: "gone", classes: two, want: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			fast := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "disks"}
			got, err := ClassOf(t.Context(), shelf{prefers: row.prefers, classes: row.classes}, fast)
			if err != nil || got != row.want {
				t.Errorf("got %q, %v; want %q", got, err, row.want)
			}
		})
	}
	if got, err := ClassOf(t.Context(), shelf{classes: two}, nil); got != "" || err != nil {
		t.Errorf("of no storage class: %q, %v", got, err)
	}
}

// TestMode: the storage knows best which mode the data has, then the snapshot's author.
func TestMode(t *testing.T) {
	block, file := corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	noted := func(mode string) *Snapshot {
		return &Snapshot{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnMode: mode}}}
	}
	stored := func(mode *corev1.PersistentVolumeMode) *Content {
		return &Content{Spec: snapshotv1.VolumeSnapshotContentSpec{SourceVolumeMode: mode}}
	}
	for name, row := range map[string]struct {
		snapshot *Snapshot
		content  *Content
		want     corev1.PersistentVolumeMode
	}{
		"nobody says":              {&Snapshot{}, stored(nil), ""},
		"there is nothing":         {nil, nil, ""},
		"the storage says":         {&Snapshot{}, stored(&block), block},
		"the storage contradicts":  {noted("Block"), stored(&file), file},
		"its author says":          {noted("Block"), nil, block},
		"its author says the same": {noted("Filesystem"), stored(nil), file},
		"a word that is no mode":   {noted("Tape"), stored(nil), ""},
	} {
		if got := Mode(row.snapshot, row.content); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// TestContentOf: where the data of a snapshot is, as far as it is bound.
func TestContentOf(t *testing.T) {
	content := &Content{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{labelNode: "node1"}}}
	bound := &Snapshot{Status: &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: ptr.To("c")}}
	got, err := ContentOf(t.Context(), shelf{content: content}, bound)
	if err != nil || got == nil || Home(got).NodeSelectorTerms[0].MatchFields[0].Values[0] != "node1" {
		t.Errorf("of a bound snapshot: %v, %v", got, err)
	}
	for _, s := range []*Snapshot{{}, {Status: &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: ptr.To("gone")}}} {
		if got, err := ContentOf(t.Context(), shelf{content: content}, s); err != nil || got != nil || Home(got) != nil || Driver(got) != "" {
			t.Errorf("of %v: %v, %v", s.Status, got, err)
		}
	}
}
