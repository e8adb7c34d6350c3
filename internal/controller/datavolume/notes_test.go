package datavolume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestCloneTypeOnTheVolume: how a clone is made is on its DataVolume too. A claim that is made for it later does not take the word over.
func TestCloneTypeOnTheVolume(t *testing.T) {
	stale := cloneOf(filltest.Team)
	stale.Annotations = map[string]string{names.CloneType: "csi-clone", "note": "kept"}
	for name, c := range map[string]struct {
		objects []client.Object
		volume  *cdiv1.DataVolume
		want    string
	}{
		"copied":        {[]client.Object{filltest.Bound(filltest.Team, "golden")}, cloneOf(filltest.Team), "copy"},
		"by a snapshot": {append(filltest.Driver(), filltest.Bound(filltest.Team, "golden")), cloneOf(filltest.Team), "snapshot"},
		"made again":    {[]client.Object{filltest.Bound(filltest.Team, "golden")}, stale, "copy"},
		"no clone":      {nil, newVolume(&cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}), ""},
	} {
		w := filltest.New(t, filltest.Scene{Objects: append(c.objects, filltest.Class(filltest.AtOnce), c.volume), Reports: []task.Report{filltest.Done()}})
		w.Run(volumeName, build(w))
		if v := volumeIn(w); v.Annotations[names.CloneType] != c.want || v.Annotations["note"] != c.volume.Annotations["note"] {
			t.Errorf("%s: the volume has %v, want %q", name, v.Annotations, c.want)
		}
		if is := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName).Annotations[names.CloneType]; is != c.want {
			t.Errorf("%s: the claim has %q, want %q", name, is, c.want)
		}
	}
}

// TestImportPodIsNamed: while the first worker of an import runs, its name is on the claim; of a clone, an upload and a claim that is filled
// already there is none.
func TestImportPodIsNamed(t *testing.T) {
	http := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}}
	for name, c := range map[string]struct {
		volume *cdiv1.DataVolume
		want   string
	}{
		"an import": {newVolume(http), "importer-disk"},
		"an upload": {newVolume(&cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}), ""},
		"a clone":   {cloneOf(filltest.Team), ""},
	} {
		w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), filltest.Bound(filltest.Team, "golden"), c.volume}})
		r := build(w)
		for running := false; !running; running = workerRuns(w) {
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c.volume)})
			w.Must(err)
			w.Turn()
		}
		if is := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName).Annotations[names.ImportPod]; is != c.want {
			t.Errorf("%s: the claim names %q, want %q", name, is, c.want)
		}
	}
}

// workerRuns reports whether there is a worker, and it runs.
func workerRuns(w *filltest.World) bool {
	var pods corev1.PodList
	w.Must(w.API.List(w.T.Context(), &pods))
	return len(pods.Items) > 0 && pods.Items[0].Status.Phase == corev1.PodRunning
}
