package populate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestWish: a claim is cloned as it asks to be, if it can; what clients see is how it was made, with a reason only where that is a
// fallback, and how far it is.
func TestWish(t *testing.T) {
	const back = "cdi.kubevirt.io/cloneFallbackReason"
	for wish, c := range map[string]struct {
		driver   bool
		way      string
		fallback bool
	}{
		"copy":      {true, "copy", false},
		"snapshot":  {true, "snapshot", false},
		"csi-clone": {true, "csi-clone", false},
		"":          {true, "snapshot", false},
		"teleport":  {true, "snapshot", false},
		"snapshot ": {false, "copy", true},
	} {
		t.Run(wish, func(t *testing.T) {
			target := from("VolumeCloneSource", "")
			if wish != "" {
				target.Annotations = map[string]string{names.CloneType: wish}
			}
			objects := []client.Object{filltest.Class(filltest.AtOnce), filltest.Bound(filltest.Team, "golden"), cloning(filltest.Team), target}
			if c.driver {
				objects = append(objects, filltest.Driver()...)
			}
			w := filltest.WithFaults(t, filltest.Scene{Objects: objects, Reports: []task.Report{filltest.Done()}}, name, build, outcome)
			got := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
			why, fellBack := got.Annotations[back]
			if got.Status.Phase != corev1.ClaimBound || got.Annotations[names.CloneType] != c.way || fellBack != c.fallback {
				t.Errorf("%s, cloned by %s, fell back %t (%s)", got.Status.Phase, got.Annotations[names.CloneType], fellBack, why)
			}
			if got.Annotations[annPhase] != "Succeeded" {
				t.Errorf("its phase is %s", got.Annotations[annPhase])
			}
		})
	}
}
