package datavolume

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/task"
)

// TestStaleCacheStartsNoWorker: the cache has not heard yet that the claim is complete, and its worker is gone already.
// Starting another would write over a finished disk.
func TestStaleCacheStartsNoWorker(t *testing.T) {
	w := newWorld(t, scenario{
		objects: []client.Object{class(storagev1.VolumeBindingImmediate)}, reports: []task.Report{done()},
		volume: newVolume(&cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk"}}),
	})
	w.run()
	ctx := context.Background()
	s, err := w.r.observe(ctx, w.volume())
	w.must(err)
	s.claim = s.claim.DeepCopy()
	s.claim.ResourceVersion = "1" // as it was long ago
	delete(s.claim.Annotations, annPodPhase)
	if err := w.r.startWorker(ctx, s); !errors.Is(err, errStale) {
		t.Errorf("got %v, want %v", err, errStale)
	}
	var pods corev1.PodList
	w.must(w.api.List(ctx, &pods))
	if len(pods.Items) != 0 {
		t.Error("a worker was started on a complete claim")
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
	s := &seen{report: &task.Report{Labels: map[string]string{
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
