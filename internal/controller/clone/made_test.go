package clone

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/testing/filltest"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/volumesnapshot"
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

// TestRestoredFromABackup: the claim of a clone that came back from a backup is made of the backup's snapshot, so it is placed where that is, not
// where the source of the clone is; also if the source is in another namespace. It is not made again if its user cannot run there.
func TestRestoredFromABackup(t *testing.T) {
	content := &volumesnapshot.Content{ObjectMeta: metav1.ObjectMeta{Name: "content", Labels: map[string]string{"snapshot.storage.kubernetes.io/managed-by": "node2"}}}
	backup := volumesnapshot.New(filltest.Team, "backup", "", "disk")
	backup.Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: &content.Name}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "disk", UID: "claim-uid",
		Annotations: map[string]string{names.PodPhase: string(corev1.PodSucceeded)}}, Spec: filltest.Spec()}
	claim.Spec.DataSource = volumesnapshot.Source("backup")
	for _, from := range []string{filltest.Team, "golden"} {
		for _, on := range []string{"node1", "node2"} {
			user := consumer(func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{corev1.LabelHostname: on} }, "disk")
			w := filltest.New(t, filltest.Scene{Objects: append(onNode("golden", "node1"), node("node1"), node("node2"), content, backup, user)})
			c := New(Parts{Reader: w.API, Live: w.API, Writer: w.Writer, Clock: w.Clock})
			spec := &cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: from, Name: "golden"}}}
			s, err := c.Find(t.Context(), Order{Namespace: filltest.Team, Name: "disk", UID: "1", Spec: spec}, Target{Claim: claim, Class: filltest.Class(filltest.Waits), Recorded: true})
			w.Must(err)
			want := map[string]string{"node2": "node2"}[on]
			if s.where.Beside != want {
				t.Errorf("of a source in %s, for a pod on %s: it is placed on %q, want %q", from, on, s.where.Beside, want)
			}
			if again := s.Origin() == volume.Misplaced; again != (on == "node1" && from == filltest.Team) {
				t.Errorf("of a source in %s, for a pod on %s: %v", from, on, s.Origin())
			}
		}
	}
}
