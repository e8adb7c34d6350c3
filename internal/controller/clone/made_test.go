package clone

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/testing/filltest"
	"github.com/berth-vm/berth/internal/token"
)

// TestMadeByATenant: a claim with a data source of its own looks like one that its driver is to fill, and a driver clones within a namespace only.
// Without a proof its author learns nothing of a claim of another namespace that the volume is said to be a clone of: not whether it is there
// and full, and not on which node.
func TestMadeByATenant(t *testing.T) {
	key, err := token.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	theirs := filltest.BoundOn("fedora", "node-1")
	theirs[0].SetNamespace("golden")
	spec := filltest.Spec()
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "disk", UID: "volume-uid"},
		Spec: cdiv1.DataVolumeSpec{PVC: &spec, SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "os"}}}
	ds := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "os"}}
	forged := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "disk", UID: "claim-uid"}, Spec: spec}
	forged.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "fedora"}
	for _, source := range []string{"fedora", "none"} {
		ds.Spec.Source = cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: source}}
		w := filltest.New(t, filltest.Scene{Objects: append([]client.Object{filltest.Class(filltest.Waits), v, ds.DeepCopy(), forged}, append(theirs, filltest.Nodes("node-1")...)...)})
		c := New(Parts{Reader: w.API, Live: w.API, Writer: w.Writer, Clock: w.Clock, Image: "berth", Tokens: sealed{key: key}})
		s, err := c.Find(t.Context(), Order{For: v, Namespace: v.Namespace, Name: v.Name, UID: v.UID, Spec: &v.Spec}, Target{Claim: forged, Class: filltest.Class(filltest.Waits)})
		w.Must(err)
		if s.home != nil || len(s.place.Homes) > 0 || s.lost != "" || s.where.Beside != "" {
			t.Errorf("of %s it is known that it is on %v, and %q", source, s.place.Homes, s.lost)
		}
		if got := s.Origin(); got != volume.Usable { // the driver is let fill it from its own namespace
			t.Errorf("the source %s is %v", source, got)
		}
	}
}
