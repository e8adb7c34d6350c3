package populate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// inStages is an import in stages for a claim.
func inStages(claim string, final bool, checkpoints ...string) *cdiv1.VolumeImportSource {
	v := importing().(*cdiv1.VolumeImportSource)
	v.Spec.Source.HTTP.URL = "http://images/disks/"
	v.Spec.TargetClaim, v.Spec.FinalCheckpoint = &claim, ptr.To(final)
	before := ""
	for _, c := range checkpoints {
		v.Spec.Checkpoints = append(v.Spec.Checkpoints, cdiv1.DataVolumeCheckpoint{Previous: before, Current: c})
		before = c
	}
	return v
}

// TestStagesOfAnImportSource: the claim waits for stages that are added later, and gets its volume with the last. Another claim is not filled.
func TestStagesOfAnImportSource(t *testing.T) {
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), inStages(name, false, "full"), from("VolumeImportSource", "")},
		Reports: []task.Report{filltest.Done(), filltest.Done()}})
	r := build(w)
	w.Run(name, r)
	said := func(want state.Reason, bound bool) {
		t.Helper()
		c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
		if has := c.Annotations[cluster.AnnState]; has != string(want) || (c.Status.Phase == corev1.ClaimBound) != bound {
			t.Fatalf("it says %s and is %s, want %s: %v", has, c.Status.Phase, want, c.Annotations)
		}
	}
	said(state.ImportPaused, false)
	has := filltest.Get[cdiv1.VolumeImportSource](w, filltest.Team, "src")
	has.Spec = inStages(name, true, "full", "one").Spec
	w.Must(w.API.Update(t.Context(), has))
	w.Run(name, r)
	said(state.PopulationDone, true)

	w = filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), inStages("other", false, "full"), from("VolumeImportSource", "")}})
	w.Run(name, build(w))
	if c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name); w.Tries != 0 || !strings.Contains(c.Annotations[cluster.AnnRunningMessage], "for claim other") {
		t.Errorf("%d workers, it says %v", w.Tries, c.Annotations)
	}
}
