package datavolume

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestCloneIntoASmallerClaim: the claim is made, without anything in it, and the volume says why. Once the claim has grown, it is filled.
func TestCloneIntoASmallerClaim(t *testing.T) {
	golden := filltest.Bound(filltest.Team, "golden")
	golden.Annotations = map[string]string{names.DiskSize: "1063256064"} // 1014Mi
	for name, objects := range map[string][]client.Object{"copied": nil, "by its driver": filltest.Driver()} {
		v := cloneOf(filltest.Team)
		v.Spec.PVC.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("500Mi")
		w := filltest.New(t, filltest.Scene{Objects: append(objects, filltest.Class(filltest.AtOnce), golden, v), Reports: []task.Report{filltest.Done()}})
		r := build(w)
		w.Run(volumeName, r)
		c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName)
		if c == nil || c.Spec.DataSource != nil || c.Annotations[names.PodPhase] != "" || w.Tries > 0 {
			t.Fatalf("%s: the claim is %+v after %d workers", name, c, w.Tries)
		}
		said := volumeIn(w).Status
		if ready := said.Conditions[2]; said.Phase != cdiv1.Pending || ready.Reason != "ErrIncompatiblePVC" || !strings.Contains(ready.Message, "is smaller than the source") {
			t.Errorf("%s: it is %s: %+v", name, said.Phase, ready)
		}
		told := ""
		for len(w.Events.Events) > 0 {
			told += <-w.Events.Events + "\n"
		}
		if !strings.Contains(told, "ErrIncompatiblePVC") || !strings.Contains(told, "CloneValidationFailed") {
			t.Errorf("%s: told are\n%s", name, told)
		}
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
		w.Must(w.API.Update(t.Context(), c))
		w.Run(volumeName, r)
		if phase := volumeIn(w).Status.Phase; phase != cdiv1.Succeeded || w.Tries != 1 {
			t.Errorf("%s: after it has grown it is %s after %d workers", name, phase, w.Tries)
		}
	}
}
