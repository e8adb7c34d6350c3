package populate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
	"github.com/berth-vm/berth/pkg/claim"
)

// TestInPlaceLoop: on a class whose provisioner looks at no source the claim itself is filled, whichever write fails or is the controller's
// last; also if it was not known of the provisioner, and a prime was begun.
func TestInPlaceLoop(t *testing.T) {
	made := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) // now, in that world
	at, waits := filltest.Class(filltest.AtOnce), filltest.Class(filltest.Waits)
	in := func(objects ...client.Object) []client.Object { return objects }
	for _, sc := range []scenario{
		{name: "import", objects: in(waits, importing()), target: from("VolumeImportSource", ""), said: state.PopulationDone},
		{name: "import at once", objects: in(at, importing()), target: from("VolumeImportSource", ""), said: state.PopulationDone},
		{name: "upload", objects: in(waits, uploading()), target: from("VolumeUploadSource", ""), said: state.PopulationDone},
		{name: "clone", objects: in(waits, filltest.Bound(filltest.Team, "golden"), cloning(filltest.Team)), target: from("VolumeCloneSource", ""),
			said: state.PopulationDone},
		{name: "clone across namespaces", objects: in(waits, filltest.Bound("images", "golden"), cloning("images"), grant("cdi.kubevirt.io", "VolumeCloneSource")),
			target: from("VolumeCloneSource", "images"), said: state.PopulationDone},
		{name: "fatal", objects: in(waits, importing()), target: from("VolumeImportSource", ""), reports: []task.Report{filltest.Fatal()},
			said: state.Import.Reason(state.GivenUp)},
	} {
		for name, unknown := range map[string]bool{"": false, ", as it turns out": true} {
			if unknown && sc.name != "import" && sc.name != "clone" {
				continue // two of them are enough
			}
			t.Run(sc.name+name, func(t *testing.T) {
				t.Parallel()
				target := sc.target.DeepCopy()
				if !unknown {
					target.CreationTimestamp = made
				}
				reports := sc.reports
				if reports == nil {
					reports = []task.Report{filltest.Retry(), filltest.Done()}
				}
				scene := filltest.Scene{Objects: append(sc.objects[:len(sc.objects):len(sc.objects)], target), Reports: reports, Ignorant: true, Consumed: []string{"disk"}}
				w := filltest.WithFaults(t, scene, "disk", build, outcome)
				c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
				if said := c.Annotations[cluster.AnnState]; said != string(sc.said) {
					t.Fatalf("it says %s, want %s: %v", said, sc.said, c.Annotations)
				}
				proof, lacks := clonesource.Complete(c)
				if full := sc.said == state.PopulationDone; full != (proof != clonesource.Unproven) {
					t.Errorf("complete: %s, %s", proof, lacks)
				} else if full && (w.Tries != 2 || fmt.Sprint(w.Left()["pods"]) != "[]" || c.Spec.VolumeName != "pvc-target-uid" || len(c.Finalizers) != 0) {
					t.Errorf("after %d tries left are %v, its volume is %s, finalizers are %v", w.Tries, w.Left(), c.Spec.VolumeName, c.Finalizers)
				}
				if prime := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(c)); prime != nil {
					t.Error("a prime is left over")
				}
			})
		}
	}
}

// TestCertainlyEmpty: a claim that was bound without its data is written to if nothing can be on its volume, and else says why not.
func TestCertainlyEmpty(t *testing.T) {
	static := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk7", Annotations: map[string]string{names.BoundByKube: "yes"}}}
	dynamic := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-target-uid", Annotations: map[string]string{names.ProvisionedBy: "test"}}}
	looked := map[string]string{names.BoundByKube: "yes", names.VolumeList: "[]"}
	user := func(change func(*corev1.Pod)) client.Object {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "user"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}}}
		change(p)
		return p
	}
	launcher := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "vm", UID: "vmi", Controller: ptr.To(true)}}
		p.Spec.NodeName, p.Status.Phase = filltest.Node, corev1.PodRunning
	}
	for name, c := range map[string]struct {
		volume      *corev1.PersistentVolume
		annotations map[string]string
		others      []client.Object
		foreign     bool   // the volume is another claim's
		want        string // why it is left alone; empty: it is filled
	}{
		"a static volume that was free":       {volume: static, annotations: looked},
		"a volume that was made for it":       {volume: dynamic},
		"with a launcher that waits":          {volume: static, annotations: looked, others: []client.Object{user(launcher)}},
		"nobody looked before it was bound":   {volume: static, annotations: map[string]string{names.BoundByKube: "yes"}, want: "before it was known whether that was reserved"},
		"a list that cannot be read":          {volume: static, annotations: map[string]string{names.BoundByKube: "yes", names.VolumeList: "["}, want: "before it was known"},
		"a volume that was reserved for it":   {volume: static, annotations: map[string]string{names.BoundByKube: "yes", names.VolumeList: `["disk7"]`}, want: "volume disk7 was reserved for it"},
		"a claim that names its volume":       {volume: static, annotations: map[string]string{names.VolumeList: "[]"}, want: "somebody said that it is to have volume disk7"},
		"a volume of another name":            {volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-other"}}, annotations: looked, want: "somebody said that it is to have"},
		"the volume of somebody else":         {volume: dynamic, foreign: true, want: "does not say that it is the claim's"},
		"no volume":                           {annotations: looked, want: "does not say that it is the claim's"},
		"a pod has it":                        {volume: dynamic, others: []client.Object{user(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })}, want: "pod user uses it, or did"},
		"a pod had it":                        {volume: dynamic, others: []client.Object{user(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, want: "pod user uses it, or did"},
		"a pod is about to be placed":         {volume: dynamic, others: []client.Object{user(func(*corev1.Pod) {})}, want: "pod user uses it, or did"},
		"somebody else's populator filled it": {volume: dynamic, annotations: map[string]string{names.PodPhase: "Succeeded"}, want: "recorded on it that a transfer ended"},
	} {
		t.Run(name, func(t *testing.T) {
			target := from("VolumeImportSource", "")
			target.Annotations, target.Spec.VolumeName, target.Status.Phase = c.annotations, "gone", corev1.ClaimBound
			class := filltest.Class(filltest.Waits)
			if c.volume == static {
				class.Provisioner = claim.NoProvisioner
			}
			objects := append([]client.Object{class, importing(), target}, c.others...)
			if c.volume != nil {
				pv := c.volume.DeepCopy()
				target.Spec.VolumeName = pv.Name
				pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: filltest.Team, Name: "disk", UID: target.UID}
				if c.foreign {
					pv.Spec.ClaimRef.UID = "other"
				}
				objects = append(objects, pv)
			}
			w := filltest.New(t, filltest.Scene{Objects: objects})
			for range 4 {
				_, err := build(w).Reconcile(t.Context(), reconcileRequest())
				w.Must(err)
			}
			now := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
			worker := filltest.Get[corev1.Pod](w, filltest.Team, "importer-disk") != nil
			if worker != (c.want == "") {
				t.Fatalf("written to: %t; %v", worker, now.Annotations)
			}
			if said := now.Annotations[cluster.AnnRunningMessage]; c.want != "" && (now.Annotations[cluster.AnnState] != string(state.PopulationSkipped) || !strings.Contains(said, c.want)) {
				t.Errorf("it says %s: %s", now.Annotations[cluster.AnnState], said)
			}
		})
	}
}

// TestDirect: which classes bind a claim without looking at its source, and for how long that is believed.
func TestDirect(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	long := metav1.NewTime(now.Add(-time.Hour))
	for name, c := range map[string]struct {
		provisioner string
		driver      bool
		says        string // the class's annotation
		made        metav1.Time
		direct      bool
	}{
		"static volumes":                            {provisioner: claim.NoProvisioner, made: now, direct: true},
		"static volumes, after an hour":             {provisioner: claim.NoProvisioner, made: long, direct: true},
		"a CSI driver":                              {provisioner: "test", driver: true, made: now},
		"one that says so":                          {provisioner: "test", says: "true", made: now},
		"another provisioner":                       {provisioner: "test", made: now, direct: true},
		"another that has not bound it for an hour": {provisioner: "test", made: long},
	} {
		t.Run(name, func(t *testing.T) {
			class := filltest.Class(filltest.AtOnce)
			class.Provisioner, class.Annotations = c.provisioner, map[string]string{names.Populators: c.says}
			target := from("VolumeImportSource", "")
			target.CreationTimestamp = c.made
			objects := []client.Object{class, importing(), target}
			if c.driver {
				objects = append(objects, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "test"}})
			}
			w := filltest.New(t, filltest.Scene{Objects: objects})
			_, err := build(w).Reconcile(t.Context(), reconcileRequest())
			w.Must(err)
			if prime := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(target)); (prime == nil) != c.direct {
				t.Errorf("a prime was made: %t", prime != nil)
			}
			it := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
			if _, looked := it.Annotations[names.VolumeList]; looked != (c.provisioner == claim.NoProvisioner) {
				t.Errorf("its annotations are %v", it.Annotations)
			}
		})
	}
}
