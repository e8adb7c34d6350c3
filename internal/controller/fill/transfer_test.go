package fill

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/task"
)

// TestWorkerTask: a worker is told which claim it fills, not only its name, and what the volume says of its contents.
func TestWorkerTask(t *testing.T) {
	for value, raw := range map[string]bool{"": false, "raw": true, "qcow2": false} {
		v := &cdiv1.DataVolume{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "disk", UID: "volume", Annotations: map[string]string{AnnContents: value}},
			Spec:       cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk"}}},
		}
		s := &Seen{order: OfVolume(v), source: v.Spec.Source,
			claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "disk", UID: "claim"}}}
		w, err := (&Engine{}).transfer(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := w.Task.(task.Task); !ok || got.Claim != "claim" || got.Raw != raw || got.Target.Content != task.Disk {
			t.Errorf("contents %q: the task is %+v", value, w.Task)
		}
	}
}
