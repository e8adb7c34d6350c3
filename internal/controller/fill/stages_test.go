package fill

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
)

// TestStagesOutOfOrder: a worker is told which stage it brings, and none is made for a stage that was not made on what is on the claim.
func TestStagesOutOfOrder(t *testing.T) {
	for previous, wrong := range map[string]string{"full": "", "other": `since "other", and the disk is at "full"`} {
		s := &Seen{source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disks/"}}, claim: &corev1.PersistentVolumeClaim{}}
		s.claim.Annotations = map[string]string{names.CheckpointCopied + "full": "pod", names.CheckpointCurrent: "full"}
		s.order.Spec.Checkpoints = []cdiv1.DataVolumeCheckpoint{{Current: "full"}, {Previous: previous, Current: "one"}}
		w, k := render.Worker{Annotations: map[string]string{}}, task.Task{Source: task.Source{HTTP: &task.HTTP{URL: "http://images/disks/?key=1"}}, Early: true}
		err := stages{s}.aim(&w, &k)
		switch {
		case wrong != "":
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%v", err)
			}
		case err != nil:
			t.Error(err)
		case k.Source.HTTP.URL != "http://images/disks/one?key=1" || k.Checkpoint == nil || *k.Checkpoint != (task.Checkpoint{Previous: "full", Current: "one"}) || k.Early,
			w.Annotations[names.CheckpointCurrent] != "one":
			t.Errorf("it is told %+v, and has %v", k, w.Annotations)
		}
	}
}
