package datavolume

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// inStages is a volume that is imported in stages.
func inStages(final bool, checkpoints ...string) *cdiv1.DataVolume {
	v := newVolume(&cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disks/"}})
	v.Spec.FinalCheckpoint = final
	before := ""
	for _, c := range checkpoints {
		v.Spec.Checkpoints = append(v.Spec.Checkpoints, cdiv1.DataVolumeCheckpoint{Previous: before, Current: c})
		before = c
	}
	return v
}

func retainedStages() *cdiv1.DataVolume {
	v := inStages(true, "full", "one")
	v.Annotations = map[string]string{names.Retain: "true"}
	return v
}

// TestStagesAreAddedLater: each stage is a worker of its own that is told which one it is; between them the volume is Paused, and its claim says what
// is on it; the last one completes it, also if that is said afterwards.
func TestStagesAreAddedLater(t *testing.T) {
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), inStages(false, "full")},
		Reports: []task.Report{filltest.Done(), filltest.Done(), filltest.Done()}})
	r := build(w)
	w.Run(volumeName, r)
	paused := func(at string, copied ...string) {
		t.Helper()
		v, c := volumeIn(w), filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName)
		if v.Status.Phase != cdiv1.Paused || c.Annotations[names.CheckpointCurrent] != at || c.Annotations[names.PodPhase] == string(corev1.PodSucceeded) {
			t.Fatalf("the volume is %s, its claim has %v", v.Status.Phase, c.Annotations)
		}
		var has []string
		for key := range c.Annotations {
			if name, is := strings.CutPrefix(key, names.CheckpointCopied); is {
				has = append(has, name)
			}
		}
		if slices.Sort(has); !slices.Equal(has, copied) {
			t.Errorf("copied are %v, want %v", has, copied)
		}
	}
	paused("full", "full")
	if w.Tries != 1 {
		t.Errorf("%d workers", w.Tries)
	}
	change := func(v *cdiv1.DataVolume) {
		t.Helper()
		has := volumeIn(w)
		has.Spec.Checkpoints, has.Spec.FinalCheckpoint = v.Spec.Checkpoints, v.Spec.FinalCheckpoint
		w.Must(w.API.Update(t.Context(), has))
		w.Run(volumeName, r)
	}
	change(inStages(false, "full", "one", "two"))
	paused("two", "full", "one", "two")
	change(inStages(true, "full", "one", "two"))
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName)
	if v := volumeIn(w); v.Status.Phase != cdiv1.Succeeded || w.Tries != 3 || c.Annotations[names.CheckpointDone] != "true" || c.Annotations[names.CheckpointCurrent] != "" {
		t.Errorf("after %d workers the volume is %s, its claim has %v", w.Tries, v.Status.Phase, c.Annotations)
	}
}
