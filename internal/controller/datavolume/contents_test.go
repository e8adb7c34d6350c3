package datavolume

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

const (
	checkStatic  = "cdi.kubevirt.io/storage.checkStaticVolume"
	prePopulated = "cdi.kubevirt.io/storage.prePopulated"
)

// reason returns why a volume is not ready, or in which way it became so: the condition says that in words alone then.
func reason(v *cdiv1.DataVolume) (reason, message string) {
	for _, c := range v.Status.Conditions {
		if c.Type != cdiv1.DataVolumeReady {
			continue
		}
		for _, done := range []state.Reason{state.PrePopulated, state.Import.Reason(state.Succeeded)} {
			said := state.Of(done)
			if said.Claim = volumeName; said.Text() == c.Message {
				return string(done), c.Message
			}
		}
		return c.Reason, c.Message
	}
	return "", ""
}

// unfilled returns the golden claim as it is when it is bound and nothing has been written to it: another volume's, no worker
// yet.
func unfilled(namespace string) *corev1.PersistentVolumeClaim {
	c := filltest.Bound(namespace, "golden")
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume", Name: "golden", UID: "golden-uid",
		Controller: ptr.To(true)}}
	return c
}

// TestCloneWaitsForItsSource: nothing is made of a claim that is bound and not filled, in whatever way it is to be cloned. As soon as
// the end of its transfer is recorded it is cloned, in that way.
func TestCloneWaitsForItsSource(t *testing.T) {
	wish := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Status: cdiv1.StorageProfileStatus{CloneStrategy: ptr.To(cdiv1.CloneStrategyCsiClone)}}
	for name, c := range map[string]struct {
		objects   []client.Object
		namespace string
	}{
		"csi-clone": {append(filltest.Driver(), wish), filltest.Team},
		"snapshot":  {filltest.Driver(), filltest.Team},
		"copy":      {nil, filltest.Team},
		"stream":    {nil, "images"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := filltest.New(t, filltest.Scene{
				Objects: append(slices.Clone(c.objects), filltest.Class(filltest.AtOnce), unfilled(c.namespace), cloneOf(c.namespace)),
				Reports: []task.Report{filltest.Done()},
			})
			r := build(w)
			w.Run(volumeName, r)
			why, text := reason(volumeIn(w))
			if why != "CloneSourceNotReady" || !strings.Contains(text, "still being filled by DataVolume golden") || strings.Contains(text, "doesn't exist") {
				t.Errorf("it says %s: %s", why, text)
			}
			left := w.Left()
			if n := len(left["claims"].([]string)); n != 1 || w.Tries != 0 || len(left["pods"].([]string)) != 0 || len(left["snapshots"].([]string)) != 0 {
				t.Fatalf("made of an empty claim: %v", left)
			}
			golden := filltest.Get[corev1.PersistentVolumeClaim](w, c.namespace, "golden")
			golden.Annotations = map[string]string{clonesource.AnnPodPhase: string(corev1.PodSucceeded)}
			w.Must(w.API.Update(t.Context(), golden))
			w.Run(volumeName, r)
			clone := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName)
			if phase := volumeIn(w).Status.Phase; phase != cdiv1.Succeeded || clone.Annotations["berth.dev/clone"] != name {
				t.Errorf("it is %s, cloned by %s", phase, clone.Annotations["berth.dev/clone"])
			}
			known := map[string]string{"stream": "copy"}[name]
			if known == "" {
				known = name
			}
			_, back := clone.Annotations["cdi.kubevirt.io/cloneFallbackReason"]
			if got := clone.Annotations["cdi.kubevirt.io/cloneType"]; got != known || back != (known == "copy") {
				t.Errorf("clients see %s, as a fallback: %t", got, back)
			}
		})
	}
}

// TestCloneOfAnotherSource: a clone that is held is not made of a source that was made again meanwhile and is not filled yet.
func TestCloneOfAnotherSource(t *testing.T) {
	wish := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Status: cdiv1.StorageProfileStatus{CloneStrategy: ptr.To(cdiv1.CloneStrategyCsiClone)}}
	full := filltest.Bound(filltest.Team, "golden")
	w := filltest.New(t, filltest.Scene{
		Objects: append(filltest.Driver(), wish, filltest.Class(filltest.Waits), full, cloneOf(filltest.Team)),
	})
	r := build(w)
	claim := func() *corev1.PersistentVolumeClaim {
		return filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName)
	}
	w.Run(volumeName, r)
	if c := claim(); c == nil || c.Spec.DataSource == nil || volumeIn(w).Status.Phase != cdiv1.WaitForFirstConsumer {
		t.Fatalf("the clone is %s", volumeIn(w).Status.Phase)
	}
	w.Must(w.API.Delete(t.Context(), full))
	again := unfilled(filltest.Team)
	w.Must(w.API.Create(t.Context(), again))
	w.Run(volumeName, r)
	if why, text := reason(volumeIn(w)); claim() != nil || why != "CloneSourceNotReady" {
		t.Errorf("its claim is there: %t; %s: %s", claim() != nil, why, text)
	}
	again.Annotations = map[string]string{clonesource.AnnPodPhase: string(corev1.PodSucceeded)}
	w.Must(w.API.Update(t.Context(), again))
	w.Run(volumeName, r)
	if c := claim(); c == nil || volumeIn(w).Status.Phase != cdiv1.WaitForFirstConsumer {
		t.Errorf("the clone is %s", volumeIn(w).Status.Phase)
	}
}

// TestReservedVolume: a volume that is reserved for the claim is never overwritten unless the DataVolume names it, and is used as
// the content if the DataVolume says so.
func TestReservedVolume(t *testing.T) {
	http := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}}
	upload := &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
	keep := map[string]string{checkStatic: ""}
	now := map[string]string{checkStatic: "", "cdi.kubevirt.io/storage.bind.immediate.requested": ""}
	free := filltest.Reserved(volumeName)
	free.Spec.ClaimRef = nil
	used := filltest.Reserved(volumeName)
	used.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"} // of an earlier claim
	for name, c := range map[string]struct {
		class       *corev1.PersistentVolume
		source      *cdiv1.DataVolumeSource
		annotations map[string]string
		named       string
		waits       bool
		want        string
		tries       int
	}{
		"kept":                            {filltest.Reserved(volumeName), http, keep, "", false, "PrePopulated", 0},
		"kept, not waiting for an upload": {filltest.Reserved(volumeName), upload, keep, "", false, "PrePopulated", 0},
		"kept on a class that waits":      {filltest.Reserved(volumeName), http, now, "", true, "PrePopulated", 0},
		"kept, and bound once before":     {used, http, keep, "", false, "PrePopulated", 0},
		"kept, and its source is gone":    {filltest.Reserved(volumeName), cloneOf(filltest.Team).Spec.Source, keep, "", false, "PrePopulated", 0},
		"kept by name":                    {filltest.Reserved(volumeName), http, keep, "kept", false, "PrePopulated", 0},
		"nobody says":                     {filltest.Reserved(volumeName), http, nil, "", false, "ErrContentsUnknown", 0},
		"nobody says, bound once before":  {used, http, nil, "", false, "ErrContentsUnknown", 0},
		"written over by name":            {filltest.Reserved(volumeName), http, nil, "kept", false, "ImportSucceeded", 1},
		"none is reserved":                {free, http, keep, "", false, "ImportSucceeded", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVolume(c.source)
			v.Annotations, v.Spec.PVC.VolumeName = c.annotations, c.named
			mode := filltest.AtOnce
			if c.waits {
				mode = filltest.Waits
			}
			scene := filltest.Scene{Objects: []client.Object{filltest.Class(mode), v, c.class.DeepCopy()}, Reports: []task.Report{filltest.Done()}}
			w := filltest.WithFaults(t, scene, volumeName, build, outcome)
			got := volumeIn(w)
			if why, text := reason(got); why != c.want || w.Tries != c.tries {
				t.Errorf("it says %s (%s) after %d transfers, want %s after %d", why, text, w.Tries, c.want, c.tries)
			}
			if c.want == "PrePopulated" && (got.Annotations[prePopulated] != volumeName || got.Status.Progress != "N/A" || got.Status.Phase != cdiv1.Succeeded) {
				t.Errorf("the volume is annotated %v, its progress is %s, its phase %s", got.Annotations, got.Status.Progress, got.Status.Phase)
			}
			pvc := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName)
			if proof, _ := clonesource.Complete(pvc); (proof == clonesource.Transferred) != (c.want != "ErrContentsUnknown") {
				t.Errorf("the claim's data is complete: %q", proof)
			}
		})
	}
}

// TestRecordLost: a disk that was filled is never filled again because its record was removed; the claim's owner can say that its
// contents are kept.
func TestRecordLost(t *testing.T) {
	http := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), newVolume(http)}, Reports: []task.Report{filltest.Done()}})
	r := build(w)
	w.Run(volumeName, r)
	claim := func() *corev1.PersistentVolumeClaim {
		return filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, volumeName)
	}
	for _, left := range []map[string]string{{clonesource.AnnMayFill: clonesource.Filled}, nil} {
		c := claim()
		c.Annotations = left
		w.Must(w.API.Update(t.Context(), c))
		w.Run(volumeName, r)
		if why, text := reason(volumeIn(w)); w.Tries != 1 || why != "ErrContentsUnknown" || !strings.Contains(text, "look at what is on it") {
			t.Fatalf("with %v left on the claim: %d transfers; %s: %s", left, w.Tries, why, text)
		}
	}
	c := claim()
	c.Annotations = map[string]string{clonesource.AnnPopulatedFor: volumeName}
	w.Must(w.API.Update(t.Context(), c))
	w.Run(volumeName, r)
	if why, text := reason(volumeIn(w)); w.Tries != 1 || why != "PrePopulated" {
		t.Errorf("%d transfers; %s: %s", w.Tries, why, text)
	}
}

// TestRestoredFromABackup: a volume and its claim that are made again without owners and status belong together again, and nothing is transferred. A
// volume of that name that asks for something else does not get the claim.
func TestRestoredFromABackup(t *testing.T) {
	http := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk.qcow2"}}
	other := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/other.qcow2"}}
	first := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), newVolume(http)}, Reports: []task.Report{filltest.Done()}})
	first.Run(volumeName, build(first))
	claim := filltest.Get[corev1.PersistentVolumeClaim](first, filltest.Team, volumeName)
	claim.ObjectMeta = metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, UID: "another", Labels: claim.Labels, Annotations: claim.Annotations}
	for source, want := range map[*cdiv1.DataVolumeSource]string{http: "PrePopulated", other: "ErrResourceExists"} {
		w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), claim.DeepCopy(), newVolume(source)}})
		w.Run(volumeName, build(w))
		if why, text := reason(volumeIn(w)); why != want || w.Tries != 0 {
			t.Errorf("of %s it says %s: %s, after %d transfers", source.HTTP.URL, why, text, w.Tries)
		}
	}
}

// TestClaimWithASourceOfItsOwn: a volume that CDI has begun with a populator is filled for its claim's sake, and says what the
// claim has.
func TestClaimWithASourceOfItsOwn(t *testing.T) {
	for shown, want := range map[string]cdiv1.DataVolumePhase{"UploadReady": cdiv1.UploadReady, "": cdiv1.Pending, "NobodyKnows": cdiv1.Pending, "Completed": cdiv1.Pending, "PrePopulated": cdiv1.Pending} {
		v := newVolume(&cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}})
		c := filltest.Bound(filltest.Team, volumeName)
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(v, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
		c.Annotations = map[string]string{"berth.dev/state": shown}
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("cdi.kubevirt.io"), Kind: cdiv1.VolumeUploadSourceRef, Name: "theirs"}
		w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), c, v}})
		w.Run(volumeName, build(w))
		if got := volumeIn(w).Status.Phase; got != want {
			t.Errorf("%q on the claim is %s on the volume, want %s", shown, got, want)
		}
		if left := w.Left(); len(left["pods"].([]string)) != 0 {
			t.Errorf("%q: the volume writes beside the populator: %v", shown, left)
		}
	}
}
