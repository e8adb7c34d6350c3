package fill

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestReasonOfACloneInUse: that a pod uses the source is why the copying waits. It is not why the clone is copied, nor why its claim
// is not there yet.
func TestReasonOfACloneInUse(t *testing.T) {
	spec := filltest.Spec()
	source := &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: filltest.Team, Name: "golden"}}
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "disk", UID: "volume-uid"},
		Spec: cdiv1.DataVolumeSpec{PVC: &spec, Source: source}}
	user := filltest.Consumer("golden", "node1")
	user.Name, user.Status.Phase = "writer", corev1.PodRunning
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), v, filltest.Bound(filltest.Team, "golden"), user}})
	e := New(Parts{Reader: w.API, Live: w.API, Writer: w.Writer, Clock: w.Clock, Image: "berth", Ask: filltest.Silent})
	s, err := e.Observe(t.Context(), OfVolume(v))
	w.Must(err)
	outcome, err := e.Act(t.Context(), s)
	w.Must(err)
	if !outcome.Stale {
		t.Errorf("while the claim is made: %+v", outcome.Status)
	}
	s, err = e.Observe(t.Context(), OfVolume(v))
	w.Must(err)
	outcome, err = e.Act(t.Context(), s)
	w.Must(err)
	if said := outcome.Status.State; said.Reason != state.ClaimUnbound || strings.Contains(said.Detail, "writer") {
		t.Errorf("before the claim is bound: %s, %q", said.Reason, said.Detail)
	}
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
	if why := c.Annotations[names.CloneWhy]; !strings.Contains(why, "NoProvisionerMatch") || strings.Contains(why, "writer") {
		t.Errorf("the claim says that it is cloned in this way because of %q", why)
	}
	c.Status.Phase = corev1.ClaimBound
	w.Must(w.API.Status().Update(t.Context(), c))
	s, err = e.Observe(t.Context(), OfVolume(v))
	w.Must(err)
	outcome, err = e.Act(t.Context(), s)
	w.Must(err)
	if said := outcome.Status.State; said.Reason != state.SourceBusy || !strings.Contains(said.Detail, "writer") {
		t.Errorf("while the source is in use: %s, %q", said.Reason, said.Detail)
	}
}
