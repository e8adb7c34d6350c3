package datasource

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestSnapshotDeleted: a DataSource whose VolumeSnapshot is deleted is checked again, and is not Ready any more.
func TestSnapshotDeleted(t *testing.T) {
	golden := filltest.Snapshot(filltest.Team, "golden", "", corev1.PersistentVolumeFilesystem)
	golden[0].SetLabels(map[string]string{"kubevirt.io/dynamic-credentials-support": "true", "cdi.kubevirt.io/dataImportCron": "weekly"})
	self := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "os"},
		Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "golden"}}},
	}
	w := filltest.New(t, filltest.Scene{Objects: append(golden, self)})
	r := &reconciler{reader: w.API, live: w.API, writer: w.Writer, clock: w.Clock}
	says := func(want string) {
		t.Helper()
		result, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: filltest.Team, Name: "os"}})
		w.Must(err)
		if result.RequeueAfter != snapshotEvery {
			t.Errorf("it is looked at again after %s", result.RequeueAfter)
		}
		if is := filltest.Get[cdiv1.DataSource](w, filltest.Team, "os"); len(is.Status.Conditions) != 1 || is.Status.Conditions[0].Reason != want {
			t.Errorf("it says %+v, want %s", is.Status.Conditions, want)
		}
	}
	says("Ready")
	if is := filltest.Get[cdiv1.DataSource](w, filltest.Team, "os").Labels; len(is) != 1 || is["kubevirt.io/dynamic-credentials-support"] != "true" {
		t.Errorf("it has the labels %v", is)
	}
	w.Must(w.API.Delete(context.Background(), golden[0]))
	says("NotFound")
}
