package restore

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// TestClassOfTheProfile: a machine's volumes are cut with the class that the StorageProfile of their storage says.
func TestClassOfTheProfile(t *testing.T) {
	w := newWorld(t, false, false)
	w.must(w.api.Create(context.Background(), &volumesnapshot.Class{ObjectMeta: metav1.ObjectMeta{Name: "preferred"}, Driver: "disks"}))
	w.must(w.api.Create(context.Background(), &cdiv1.StorageProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "local"}, Status: cdiv1.StorageProfileStatus{SnapshotClass: ptr.To("preferred")}}))
	w.snapshot()
	if got := ptr.Deref(read[volumesnapshot.Snapshot](w, "vmsnapshot-snap-uid-volume-root").Spec.VolumeSnapshotClassName, ""); got != "preferred" {
		t.Errorf("the volume was cut with class %s", got)
	}
}
