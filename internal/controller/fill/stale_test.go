package fill

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestStaleCacheStartsNoWorker: the cache has not heard yet that the claim is complete, and its worker is gone already.
// Starting another would write over a finished disk.
func TestStaleCacheStartsNoWorker(t *testing.T) {
	spec := filltest.Spec()
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "disk", UID: "volume-uid"},
		Spec: cdiv1.DataVolumeSpec{PVC: &spec, Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk"}}}}
	order := OfVolume(v)
	c := order.claim(spec)
	c.UID, c.Status.Phase = "claim-uid", corev1.ClaimBound
	c.Annotations[names.PodPhase], c.Annotations[names.MayFill] = string(corev1.PodSucceeded), names.Filled
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), v, c}})
	e := New(Parts{Reader: w.API, Live: w.API, Writer: w.Writer, Clock: w.Clock, Image: "berth", Ask: filltest.Silent})
	ctx := context.Background()
	s, err := e.Observe(ctx, order)
	w.Must(err)
	s.claim = s.claim.DeepCopy()
	s.claim.ResourceVersion = "1" // as it was long ago
	delete(s.claim.Annotations, names.PodPhase)
	s.claim.Annotations[names.MayFill] = string(v.UID)
	outcome, err := e.Act(ctx, s)
	w.Must(err)
	if !outcome.Stale {
		t.Errorf("outcome is %+v", outcome)
	}
	if err := e.startWorker(ctx, s); !errors.Is(err, cluster.ErrStale) {
		t.Errorf("got %v, want %v", err, cluster.ErrStale)
	}
	if left := w.Left()["pods"].([]string); len(left) != 0 {
		t.Errorf("workers on a complete claim: %v", left)
	}
}

func TestPause(t *testing.T) {
	for attempt, want := range map[int32]string{0: "5s", 1: "10s", 3: "40s", 5: "2m40s", 6: "5m0s", 1000: "5m0s"} {
		if got := pause(attempt).String(); got != want {
			t.Errorf("pause after try %d is %s, want %s", attempt, got, want)
		}
	}
}

// TestImageLabels: an image may say what instance type it wants, and nothing that others rely on.
func TestImageLabels(t *testing.T) {
	s := &Seen{report: &task.Report{Labels: map[string]string{
		"instancetype.kubevirt.io/default-instancetype": "u1.small",
		"cdi.kubevirt.io/OwnedByUID":                    "forged",
		"example.com/x":                                 "foreign",
		"kubevirt.io/bad value":                         "x",
		"kubevirt.io/long":                              "not a label value",
	}}}
	got := s.imageLabels()
	if len(got) != 1 || got["instancetype.kubevirt.io/default-instancetype"] != "u1.small" {
		t.Errorf("labels are %v", got)
	}
}
