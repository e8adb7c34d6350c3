package fill

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestServerThatWent: the server that a clone is read from goes while its worker waits for it, as one does whose disk a guest uses. The source is
// served again, and the worker is made again when it can be read, from the new server.
func TestServerThatWent(t *testing.T) {
	w, order, own := split(t)
	worker := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: render.WorkerName(render.RoleImport, "disk"), UID: "worker-uid",
			OwnerReferences: []metav1.OwnerReference{order.Owner}, Labels: map[string]string{render.LabelClaimUID: string(own.UID)}},
		Spec:   corev1.PodSpec{HostAliases: []corev1.HostAlias{{IP: "10.0.0.9", Hostnames: []string{"berth-clone"}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	w.Must(w.API.Create(t.Context(), worker))
	e := engine(w, w.API)
	step := func(want volume.Origin) {
		t.Helper()
		s, err := e.Observe(t.Context(), order)
		w.Must(err)
		if got := s.Facts().Origin; got != want {
			t.Fatalf("the source is %s, want %s", got, want)
		}
		_, err = e.Act(t.Context(), s)
		w.Must(err)
	}
	step(volume.Unready)
	server := filltest.Get[corev1.Pod](w, filltest.Team, "volume-uid-source-pod")
	if server == nil {
		t.Fatal("nobody serves the source")
	}
	step(volume.Unready) // it is not ready yet
	server = filltest.Get[corev1.Pod](w, filltest.Team, server.Name)
	server.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.9",
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	w.Must(w.API.Status().Update(t.Context(), server))
	step(volume.Usable)
	if filltest.Get[corev1.Pod](w, filltest.Team, worker.Name) == nil {
		t.Fatal("a worker whose server is there was stopped")
	}
	server = filltest.Get[corev1.Pod](w, filltest.Team, server.Name)
	server.Status.PodIP = "10.0.0.10"
	w.Must(w.API.Status().Update(t.Context(), server))
	step(volume.Replaced)
	if filltest.Get[corev1.Pod](w, filltest.Team, worker.Name) != nil {
		t.Error("a worker waits for a server that is gone")
	}
}

// TestSizeOfAClone: a clone has its source's disk as it is, unless its claim asks for more room than the source's claim did.
func TestSizeOfAClone(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		pvc, storage string // what is asked for

		grows bool
	}{
		"the same claim":                   {pvc: "1Gi"},
		"a larger claim":                   {pvc: "2Gi", grows: true},
		"a size taken from the source":     {storage: ""},
		"a disk that is larger":            {storage: "2Gi", grows: true},
		"a claim as the disk itself needs": {pvc: "1026Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			source := filltest.Bound(filltest.Team, "golden")
			source.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
			source.Status.Capacity = source.Spec.Resources.Requests
			source.Annotations = map[string]string{names.DiskSize: "1006317568"}
			spec := cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: filltest.Team, Name: "golden"}}}
			if c.pvc != "" {
				pvc := filltest.Spec()
				pvc.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(c.pvc)}
				spec.PVC = &pvc
			} else {
				pvc := filltest.Spec()
				spec.Storage = &cdiv1.StorageSpec{AccessModes: pvc.AccessModes, StorageClassName: pvc.StorageClassName}
				if c.storage != "" {
					spec.Storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(c.storage)}
				}
			}
			v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "disk", UID: "volume-uid"}, Spec: spec}
			w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), source, v}})
			e := engine(w, w.API)
			order := OfVolume(v)
			s, err := e.Observe(t.Context(), order)
			w.Must(err)
			_, err = e.Act(t.Context(), s)
			w.Must(err)
			own := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
			if own == nil {
				t.Fatalf("no claim was made: %+v, %v", s.Facts(), s.lacks)
			}
			if kept := own.Annotations[names.CloneSize] == names.CloneSizeKept; kept == c.grows {
				t.Errorf("the clone's size is kept: %v", kept)
			}
			own.Status.Phase = corev1.ClaimBound
			w.Must(w.API.Status().Update(t.Context(), own))
			s, err = e.Observe(t.Context(), order)
			w.Must(err)
			worker, err := e.transfer(s)
			w.Must(err)
			k := worker.Task.(task.Task)
			if (k.Target.Size > gib) != c.grows || !c.grows && k.Target.Size != 0 {
				t.Errorf("the disk is to have %d bytes", k.Target.Size)
			}
			if k.Target.Content != task.Volume || k.Target.Path != render.TargetDir || k.Source.Local == nil || k.Source.Local.Path != render.SourceDir+"/disk.img" {
				t.Errorf("the task is %+v from %+v", k.Target, k.Source.Local)
			}
		})
	}
}

// TestBlankDeviceIsZeroed: a device may have been used before, so a worker zeroes it, as preallocation says.
func TestBlankDeviceIsZeroed(t *testing.T) {
	spec := filltest.Spec()
	spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "disk", UID: "volume-uid"}, Spec: cdiv1.DataVolumeSpec{
		PVC: &spec, Preallocation: new(true), Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}}}
	order := OfVolume(v)
	own := order.claim(spec)
	own.UID, own.Status.Phase = "claim-uid", corev1.ClaimBound
	own.Annotations = map[string]string{names.MayFill: string(v.UID)}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), own, v}})
	e := engine(w, w.API)
	s, err := e.Observe(t.Context(), OfVolume(v))
	w.Must(err)
	out, err := e.Act(t.Context(), s)
	w.Must(err)
	worker := filltest.Get[corev1.Pod](w, filltest.Team, render.WorkerName(render.RoleImport, "disk"))
	if worker == nil || out.Status.State.Ready {
		t.Fatalf("nobody zeroes the device: %+v", out.Status)
	}
	made, err := e.transfer(s)
	w.Must(err)
	if k := made.Task.(task.Task); k.Source.Blank == nil || !k.Target.Preallocate || k.Target.Path != render.TargetDevice {
		t.Errorf("the task is %+v", k)
	}
}
