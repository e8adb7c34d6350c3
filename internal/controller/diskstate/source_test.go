package diskstate

import (
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// restored returns a claim that came back from a backup: its driver makes it of a snapshot.
func restored(snapshot string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{DataSource: volumesnapshot.Source(snapshot)}}
}

// snapshotOn returns a snapshot whose data is on a node; "" if all nodes have it.
func snapshotOn(name, node string) []client.Object {
	s := &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	s.Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: ptr.To("content-" + name), ReadyToUse: ptr.To(true)}
	c := &volumesnapshot.Content{ObjectMeta: metav1.ObjectMeta{Name: "content-" + name}}
	if node != "" {
		c.Labels = map[string]string{"snapshot.storage.kubernetes.io/managed-by": node}
	}
	return []client.Object{s, c}
}

const ns = "team"

// TestClaimsFromABackupArePlaced: a claim that its driver makes of a snapshot is made on the node of the snapshot, when that is ready. Clones that
// the data side makes are placed by the data side.
func TestClaimsFromABackupArePlaced(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, cdiv1.AddToScheme, volumesnapshot.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	new := &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "new"}}
	objects := append(append(snapshotOn("one", "node1"), snapshotOn("shared", "")...), new)
	r := &Reader{Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
	bound := restored("one")
	bound.Spec.VolumeName = "pv"
	populated := restored("one")
	populated.Spec.DataSource, populated.Spec.DataSourceRef = nil, &corev1.TypedObjectReference{APIGroup: ptr.To(cdiv1.SchemeGroupVersion.Group), Kind: cdiv1.VolumeImportSourceRef, Name: "one"}
	abroad := restored("one")
	abroad.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: "one", Namespace: ptr.To("golden")}
	clone := &cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "golden"}}}}
	imported := &cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{}}}}
	for name, c := range map[string]struct {
		disk  Disk
		node  string
		lacks string
	}{
		"a claim":                         {Disk{Claim: restored("one")}, "node1", ""},
		"the claim of an import":          {Disk{Claim: restored("one"), Volume: imported}, "node1", ""},
		"the claim of a clone":            {Disk{Claim: restored("one"), Volume: clone}, "", ""},
		"bound already":                   {Disk{Claim: bound}, "", ""},
		"of a snapshot that all can have": {Disk{Claim: restored("shared")}, "", ""},
		"of a snapshot that is gone":      {Disk{Claim: restored("gone")}, "", "does not exist"},
		"of one that is being made":       {Disk{Claim: restored("new")}, "", "not ready to use yet"},
		"of another namespace":            {Disk{Claim: abroad}, "", ""},
		"filled by a populator":           {Disk{Claim: populated}, "", ""},
		"without a claim":                 {Disk{}, "", ""},
	} {
		if err := r.observeSource(t.Context(), &c.disk); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if waits := c.disk.State == machine.Filling; waits != (c.lacks != "") || !strings.Contains(c.disk.Why, c.lacks) {
			t.Errorf("%s: it is %s: %s", name, c.disk.State, c.disk.Why)
		}
		if c.disk.Unready != (c.lacks != "") {
			t.Errorf("%s: it is looked at again: %t", name, c.disk.Unready)
		}
		if c.node == "" {
			if c.disk.Beside != nil || c.disk.BesideWhy != "" {
				t.Errorf("%s: kept to %v: %s", name, c.disk.Beside, c.disk.BesideWhy)
			}
			continue
		}
		if terms := c.disk.Beside.NodeSelectorTerms; len(terms) != 1 || terms[0].MatchFields[0].Values[0] != c.node {
			t.Errorf("%s: kept to %v", name, c.disk.Beside)
		}
		if want := "PersistentVolumeClaim data is made of VolumeSnapshot one, which is on node node1"; c.disk.BesideWhy != want {
			t.Errorf("%s: it says %q", name, c.disk.BesideWhy)
		}
	}
}
