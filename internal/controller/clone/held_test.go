package clone

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestFinalizerOfAnImport: the finalizer of clones is removed from a volume that is not a clone, in case a user wrote it.
func TestFinalizerOfAnImport(t *testing.T) {
	v := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "disk", UID: "uid", Finalizers: []string{"held"}},
		Spec:       cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk"}}},
	}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{v}})
	c := New(Parts{Reader: w.API, Live: w.API, Writer: w.Writer, Clock: w.Clock})
	kept := cluster.Marks{Finalizers: []string{"held"}}
	s, err := c.Find(t.Context(), Order{For: v, Finalizer: "held", Kept: &kept, Namespace: v.Namespace, Name: v.Name, UID: v.UID, Spec: &v.Spec}, Target{})
	w.Must(err)
	if s.IsClone() || s.Origin() != volume.Usable {
		t.Errorf("an import is a clone: %t, %s", s.IsClone(), s.Origin())
	}
	if err := c.Act(t.Context(), volume.CleanUp, &s); err != nil {
		t.Fatal(err)
	}
	if len(kept.Finalizers) != 0 {
		t.Errorf("it still bears %v", kept.Finalizers)
	}
}
