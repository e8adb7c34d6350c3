package fill

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestWorkerTask: a worker is told which claim it fills, not only its name, and what the volume says of its contents.
func TestWorkerTask(t *testing.T) {
	for value, raw := range map[string]bool{"": false, "raw": true, "qcow2": false} {
		v := &cdiv1.DataVolume{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "disk", UID: "volume", Annotations: map[string]string{names.Contents: value}},
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

// TestDiskOfAClone: whose size was taken from its source has the source's disk, however the source came to its size.
func TestDiskOfAClone(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name     string
		measured string // the source's disk in bytes; "" is not measured
		block    bool   // the source is a device of 40 MiB
		clone    bool
		want     int64
	}{
		{name: "an image is not larger than what is sure to fit", want: 51 * mib},
		{name: "the source's claim was made for its disk", clone: true, measured: "41943040", want: 51 * mib},
		{name: "the source's disk fills its claim", clone: true, measured: "62914560", want: 60 * mib},
		{name: "the source's disk is larger than could fit", clone: true, measured: "104857600", want: 60 * mib},
		{name: "nobody measured the source", clone: true, want: 60 * mib},
		{name: "a device", clone: true, block: true, want: 51 * mib},
	} {
		spec := cdiv1.DataVolumeSpec{Storage: &cdiv1.StorageSpec{}}
		var objects []client.Object
		if c.clone {
			source := filltest.Bound(filltest.Team, "golden")
			source.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("40Mi")}
			source.Annotations = map[string]string{names.DiskSize: c.measured}
			if c.block {
				source.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
			}
			objects = append(objects, source)
			spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: filltest.Team, Name: "golden"}}
		}
		w := filltest.New(t, filltest.Scene{Objects: objects})
		e := New(Parts{Reader: w.API, Live: w.API, Writer: w.Writer, Clock: w.Clock})
		s := &Seen{order: OfVolume(&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team}, Spec: spec})}
		var err error
		s.clone, err = e.clones.Find(t.Context(), s.order.cloning(), s.target())
		w.Must(err)
		s.claim = &corev1.PersistentVolumeClaim{}
		s.claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}
		if got := s.diskSize(); got != c.want {
			t.Errorf("%s: the disk has %d MiB instead of %d", c.name, got/mib, c.want/mib)
		}
	}
}
