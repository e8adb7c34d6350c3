package annotatedclaim

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/claimorder"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

const name = "disk"

func target(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := filltest.Bound(filltest.Team, name)
	c.Annotations = map[string]string{claimorder.Upload: ""}
	if change != nil {
		change(c)
	}
	return c
}

// importing returns a claim that asks to be filled from a URL.
func importing(url string) *corev1.PersistentVolumeClaim {
	return target(func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{claimorder.Endpoint: url} })
}

const imageLabel = "instancetype.kubevirt.io/default-instancetype"

// labelled returns the report of a worker that found labels in the image.
func labelled() task.Report {
	r := filltest.Done()
	r.Labels = map[string]string{imageLabel: "u1.small"}
	return r
}

func pending(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeName, c.Status = "", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
}

// TestLoop: wherever the controller is interrupted, a user's claim ends up the same, and is still the user's.
func TestLoop(t *testing.T) {
	waits := filltest.Class(filltest.Waits)
	for want, sc := range map[state.Reason]struct {
		claim   *corev1.PersistentVolumeClaim
		reports []task.Report
	}{
		state.Upload.Reason(state.Succeeded): {target(nil), []task.Report{filltest.Done()}},
		state.Upload.Reason(state.GivenUp):   {target(nil), []task.Report{filltest.Fatal()}},
		state.Held:                           {target(pending), nil},
		state.Import.Reason(state.Succeeded): {importing("https://example.com/disk.qcow2"), []task.Report{labelled()}},
		state.Import.Reason(state.GivenUp):   {importing("https://example.com/no.qcow2"), []task.Report{filltest.Retry(), filltest.Fatal()}},
		state.Unsupported:                    {target(func(c *corev1.PersistentVolumeClaim) { c.Annotations[claimorder.Content] = "tape" }), nil},
		"": {target(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(cdiv1.SchemeGroupVersion.Group), Kind: "VolumeUploadSource", Name: "x"}
		}), nil}, // the populator's
	} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			scene := filltest.Scene{Objects: append(filltest.Driver(), waits, sc.claim), Reports: sc.reports}
			calm := filltest.WithFaults(t, scene, name, build, outcome)
			c := filltest.Get[corev1.PersistentVolumeClaim](calm, filltest.Team, name)
			if said := c.Annotations[cluster.AnnState]; said != string(want) {
				t.Errorf("it says %s, want %s: %v", said, want, c.Annotations)
			}
			for key, value := range sc.claim.Annotations {
				if c.Annotations[key] != value || len(c.OwnerReferences) != 0 {
					t.Errorf("it is not as it was: owners %v, annotations %v", c.OwnerReferences, c.Annotations)
				}
			}
			if want == state.Import.Reason(state.Succeeded) && c.Labels[imageLabel] != "u1.small" {
				t.Errorf("the labels that the image brought along are lost: %v", c.Labels)
			}
		})
	}
}

// TestWithdrawn: a claim that is not to be filled any more has no worker, no keys and no words of ours left, and can be deleted;
// one that is full keeps its record.
func TestWithdrawn(t *testing.T) {
	for name, c := range map[string]struct {
		claim   *corev1.PersistentVolumeClaim
		key     string
		reports []task.Report
		ended   bool
	}{
		"an upload that was waited for": {claim: target(nil), key: claimorder.Upload},
		"an import under way":           {claim: importing("https://example.com/x"), key: claimorder.Endpoint},
		"one that failed":               {importing("https://example.com/x"), claimorder.Endpoint, []task.Report{filltest.Fatal()}, true},
		"one that is full":              {target(nil), claimorder.Upload, []task.Report{filltest.Done()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), c.claim}, Reports: c.reports})
			r := build(w)
			if c.ended {
				w.Run("disk", r)
			} else {
				step(w, r) // a worker is made
				if fmt.Sprint(w.Left()["pods"]) == "[]" {
					t.Fatal("no worker was made")
				}
				step(w, r) // and said to be there
			}
			it := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
			delete(it.Annotations, c.key)
			w.Must(w.API.Update(t.Context(), it))
			w.Run("disk", r)
			it = filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
			full := name == "one that is full"
			if left := w.Left(); fmt.Sprint(left["pods"]) != "[]" || left["secrets"] != 0 || claimorder.Complete(it) != full || !full && len(it.Annotations) != 0 {
				t.Errorf("left are %v and on the claim %v", left, it.Annotations)
			}
		})
	}
}

func step(w *filltest.World, r reconcile.Reconciler) {
	_, err := r.Reconcile(w.T.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: filltest.Team, Name: "disk"}})
	w.Must(err)
}

// TestReplacedByItsOwner: a claim that is replaced by what its owner wrote at first, which drops our record, is not imported into
// again: its volume knows that it was filled.
func TestReplacedByItsOwner(t *testing.T) {
	it := importing("https://example.com/x")
	it.Spec.VolumeName = "pv-disk"
	scene := filltest.Scene{
		Objects: []client.Object{filltest.Class(filltest.AtOnce), it, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv-disk"},
			Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: filltest.Team, Name: "disk", UID: it.UID}},
		}},
		Reports: []task.Report{filltest.Done()},
	}
	w := filltest.WithFaults(t, scene, name, build, outcome)
	now := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
	if !claimorder.Complete(now) || w.Tries != 1 {
		t.Fatalf("after %d tries: %v", w.Tries, now.Annotations)
	}
	now.Annotations, now.ManagedFields = it.Annotations, nil
	w.Must(w.API.Update(t.Context(), now))
	w.Run("disk", build(w))
	now = filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
	if w.Tries != 1 || fmt.Sprint(w.Left()["pods"]) != "[]" || !claimorder.Complete(now) {
		t.Errorf("after %d tries there are pods %v and annotations %v", w.Tries, w.Left()["pods"], now.Annotations)
	}
}

// TestFilledForeign: a claim names a volume of another user, and has a pod that claims to have filled it. That volume keeps the
// record of the claim it was filled for: without it, that claim could be imported into again.
func TestFilledForeign(t *testing.T) {
	it := importing("https://example.com/x")
	pending(it)
	it.Spec.VolumeName, it.Annotations[names.Immediate] = "theirs", ""
	theirs := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs", Annotations: map[string]string{cluster.AnnFilledFor: "their-uid"}},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "golden", Name: "disk", UID: "their-uid"}},
	}
	report, err := json.Marshal(filltest.Done())
	if err != nil {
		t.Fatal(err)
	}
	forged := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: render.WorkerName(render.RoleImport, name), UID: "forged",
			Labels: map[string]string{render.LabelClaimUID: string(it.UID)}, OwnerReferences: []metav1.OwnerReference{render.ClaimOwner(it)}},
		Status: corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: string(report)}}}}},
	}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.Waits), it, theirs, forged}})
	for range 3 {
		_, err := build(w).Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: filltest.Team, Name: name}})
		w.Must(err)
	}
	if c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name); !claimorder.Complete(c) {
		t.Fatalf("the pod was not believed, so nothing was tried: %v", c.Annotations)
	}
	if pv := filltest.Get[corev1.PersistentVolume](w, "", "theirs"); pv.Annotations[cluster.AnnFilledFor] != "their-uid" {
		t.Errorf("the volume of somebody else says that it was filled for %q", pv.Annotations[cluster.AnnFilledFor])
	}
}

// TestFilledBySomebodyElse: a claim that another program filled is left unchanged, whatever its annotations ask for.
func TestFilledBySomebodyElse(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"restored": func(c *corev1.PersistentVolumeClaim) { c.Annotations["cdi.kubevirt.io/storage.populatedFor"] = "disk" },
		"complete": func(c *corev1.PersistentVolumeClaim) { c.Annotations[names.PodPhase] = string(corev1.PodSucceeded) },
		"of a machine": func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", Name: "vm", Controller: ptr.To(true)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			it := importing("https://example.com/x")
			change(it)
			w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), it}})
			w.Run("disk", build(w)) // a worker would be reported
			if pods := fmt.Sprint(w.Left()["pods"]); pods != "[]" {
				t.Errorf("there are pods %s", pods)
			}
		})
	}
}

// TestHeldGoesOn: a claim that is held is filled as soon as what held it has changed.
func TestHeldGoesOn(t *testing.T) {
	for name, change := range map[string]func(w *filltest.World){
		"its class binds at once": func(w *filltest.World) {
			w.Must(w.API.Delete(t.Context(), filltest.Class(filltest.Waits)))
			w.Must(w.API.Create(t.Context(), filltest.Class(filltest.AtOnce)))
		},
		"the gate is off": func(w *filltest.World) {
			w.Must(w.API.Create(t.Context(), &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "cdi"}}))
		},
		"it is to be bound at once": func(w *filltest.World) {
			c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
			c.Annotations["cdi.kubevirt.io/storage.bind.immediate.requested"] = ""
			w.Must(w.API.Update(t.Context(), c))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := filltest.New(t, filltest.Scene{
				Objects: append(filltest.Driver(), filltest.Class(filltest.Waits), target(pending)), Reports: []task.Report{filltest.Done()},
			})
			r := build(w)
			for _, want := range []state.Reason{state.Held, state.Upload.Reason(state.Succeeded)} {
				w.Run("disk", r)
				if said := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk").Annotations[cluster.AnnState]; said != string(want) {
					t.Fatalf("it says %s, want %s", said, want)
				}
				if want == state.Held {
					change(w)
				}
			}
		})
	}
}

// TestDue: a change in a namespace concerns the claims in it, a change of the cluster concerns all, but none that is full or that
// Berth does not fill.
func TestDue(t *testing.T) {
	in := func(namespace, name string, annotations map[string]string) client.Object {
		c := filltest.Bound(namespace, name)
		c.Annotations = annotations
		return c
	}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{
		in(filltest.Team, "waits", map[string]string{claimorder.Upload: ""}), in("other", "waits", map[string]string{claimorder.Upload: ""}),
		in(filltest.Team, "full", map[string]string{claimorder.Upload: "", names.PodPhase: string(corev1.PodSucceeded)}),
		in(filltest.Team, "bare", nil),
	}})
	r := build(w).(*Reconciler)
	for want, changed := range map[string]client.Object{
		"[team/waits]":             &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team}},
		"[other/waits team/waits]": &cdiv1.CDI{},
		"[]":                       &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere"}},
	} {
		if got := fmt.Sprint(r.due(t.Context(), changed)); got != want {
			t.Errorf("%T in %q: %s, want %s", changed, changed.GetNamespace(), got, want)
		}
	}
}

func build(w *filltest.World) reconcile.Reconciler {
	engine := fill.New(fill.Parts{
		Reader: w.API, Live: w.API, Writer: w.Writer, Clock: w.Clock, Image: "berth", Tokens: filltest.Allow{},
		Uploads: filltest.Allow{}, Ask: filltest.Silent,
	})
	return &Reconciler{reader: w.API, engine: engine, cluster: w.Writer}
}

func outcome(w *filltest.World) any {
	left := w.Left()
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
	left["annotations"], left["owners"], left["labels"] = c.Annotations, c.OwnerReferences, c.Labels
	return left
}

// TestLeavesPopulatedClaims: the worker of a claim that names one of our sources and is filled in place is owned by the claim, as those of annotated
// claims are. It is not ours to stop.
func TestLeavesPopulatedClaims(t *testing.T) {
	it := target(nil)
	it.Annotations = nil
	it.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("cdi.kubevirt.io"), Kind: "VolumeImportSource", Name: "image"}
	worker := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: render.WorkerName(render.RoleImport, name),
		OwnerReferences: []metav1.OwnerReference{render.ClaimOwner(it)}}}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), it, worker}})
	step(w, build(w))
	if filltest.Get[corev1.Pod](w, filltest.Team, worker.Name) == nil {
		t.Error("it was stopped")
	}
}
