package populate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
	"github.com/berth-vm/berth/internal/testing/golden"
)

// TestPrime: what is made for a claim, as it is made.
func TestPrime(t *testing.T) {
	target := from("VolumeImportSource", "")
	target.Labels = map[string]string{"team": "a"}
	target.Annotations = map[string]string{
		names.SelectedNode: filltest.Node, "linkerd.io/inject": "enabled", "note": "the target's own", names.PodPhase: "Succeeded",
	}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.Waits), importing(), target}})
	_, err := build(w).Reconcile(t.Context(), reconcileRequest())
	w.Must(err)
	prime := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(target))
	prime.ManagedFields, prime.ResourceVersion = nil, ""
	got, err := yaml.Marshal(prime)
	w.Must(err)
	golden.Equal(t, "testdata/prime.yaml", got)
}

// TestWithdrawn: what is not full is dropped when the permission to read its source goes.
func TestWithdrawn(t *testing.T) {
	permission := grant("cdi.kubevirt.io", "VolumeCloneSource")
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{
		filltest.Class(filltest.AtOnce), filltest.Bound("images", "golden"), cloning("images"), permission, from("VolumeCloneSource", "images"),
	}, Reports: []task.Report{filltest.Retry()}})
	r := build(w)
	step := func() {
		_, err := r.Reconcile(t.Context(), reconcileRequest())
		w.Must(err)
	}
	for range 4 {
		step()
		w.Turn()
	}
	if left := w.Left(); len(left["pods"].([]string)) == 0 {
		t.Fatalf("nothing was begun: %v", left)
	}
	w.Must(w.API.Delete(t.Context(), permission))
	for range 3 {
		step()
		w.Turn() // its worker ends before it is gone
	}
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
	prime := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(c))
	if left := w.Left(); len(left["pods"].([]string)) != 0 || left["secrets"] != 0 || prime != nil || len(c.Finalizers) != 0 {
		t.Errorf("left are %v, prime %v, finalizers %v", left, prime != nil, c.Finalizers)
	}
}

// TestReplaced: a clone that is not full is begun again when its source stands for something else.
func TestReplaced(t *testing.T) {
	source := cloning(filltest.Team)
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{
		filltest.Class(filltest.AtOnce), filltest.Bound(filltest.Team, "golden"), filltest.Bound(filltest.Team, "newer"), source,
		from("VolumeCloneSource", ""),
	}, Reports: []task.Report{filltest.Retry()}})
	r := build(w)
	for range 3 {
		_, err := r.Reconcile(t.Context(), reconcileRequest())
		w.Must(err)
		w.Turn()
	}
	if filltest.Get[corev1.Pod](w, filltest.Team, "importer-prime-target-uid") == nil {
		t.Fatal("nothing was begun")
	}
	s := cloning(filltest.Team)
	s.Spec.Source.Name = "newer"
	w.Must(w.API.Delete(t.Context(), source))
	w.Must(w.API.Create(t.Context(), s))
	for range 2 {
		_, err := r.Reconcile(t.Context(), reconcileRequest())
		w.Must(err)
	}
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
	if c.Annotations[annSource] != "PersistentVolumeClaim/team/newer" {
		t.Errorf("it was begun with %s", c.Annotations[annSource])
	}
}

// TestRefused: a provisioner that takes the node from the prime wants another one; the scheduler chooses it.
func TestRefused(t *testing.T) {
	target := from("VolumeImportSource", "")
	target.Annotations = map[string]string{names.SelectedNode: filltest.Node}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.Waits), importing(), target}})
	r := build(w)
	step := func() {
		_, err := r.Reconcile(t.Context(), reconcileRequest())
		w.Must(err)
	}
	step()
	prime := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(target))
	delete(prime.Annotations, names.SelectedNode)
	w.Must(w.API.Update(t.Context(), prime))
	step()
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
	prime = filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(target))
	if node(c) != "" || prime != nil {
		t.Errorf("the target's node is %q, the prime there: %v", node(c), prime != nil)
	}
}

// TestNodesOfAtOnce: where a class binds at once, its provisioner notes a node of its own on every claim. That says nothing of the
// prime, and nothing that was uploaded into it is dropped.
func TestNodesOfAtOnce(t *testing.T) {
	target := from("VolumeUploadSource", "")
	w := filltest.New(t, filltest.Scene{
		Objects: []client.Object{filltest.Class(filltest.AtOnce), uploading(), target}, Reports: []task.Report{filltest.Done()},
	})
	r := build(w)
	_, err := r.Reconcile(t.Context(), reconcileRequest())
	w.Must(err)
	for claim, at := range map[string]string{name: "node2", primeName(target): "node1"} {
		c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, claim)
		c.Annotations[names.SelectedNode] = at
		w.Must(w.API.Update(t.Context(), c))
	}
	w.Run(name, r)
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
	if c.Status.Phase != corev1.ClaimBound || c.Annotations[names.PopulatedFor] != name || w.Tries != 1 {
		t.Errorf("the claim is %s after %d uploads: %v", c.Status.Phase, w.Tries, c.Annotations)
	}
}

// TestTakenIsKept: once a worker takes an upload its prime stays, whatever happens to its source, to the target's node, or to the
// target itself; and what was sent is the target's in the end if that still wants it.
func TestTakenIsKept(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*filltest.World, *corev1.PersistentVolumeClaim)
		bound  bool // to what was sent
	}{
		"another node is chosen": {func(w *filltest.World, c *corev1.PersistentVolumeClaim) {
			c.Annotations[names.SelectedNode] = "node2"
			w.Must(w.API.Update(t.Context(), c))
		}, true},
		"its source is deleted": {func(w *filltest.World, _ *corev1.PersistentVolumeClaim) {
			w.Must(w.API.Delete(t.Context(), uploading()))
		}, true},
		"its target is bound to something else": {func(w *filltest.World, c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName = "other"
			w.Must(w.API.Update(t.Context(), c))
			c.Status.Phase = corev1.ClaimBound
			w.Must(w.API.Status().Update(t.Context(), c))
		}, false},
	} {
		t.Run(what, func(t *testing.T) {
			target := from("VolumeUploadSource", "")
			target.Annotations = map[string]string{names.SelectedNode: "node1"}
			w := filltest.New(t, filltest.Scene{
				Objects: []client.Object{filltest.Class(filltest.Waits), uploading(), target}, Reports: []task.Report{filltest.Done()},
			})
			r := build(w)
			running := func() bool {
				pod := filltest.Get[corev1.Pod](w, filltest.Team, "cdi-upload-prime-target-uid")
				return pod != nil && pod.Status.Phase == corev1.PodRunning
			}
			for range 10 {
				if running() {
					break
				}
				_, err := r.Reconcile(t.Context(), reconcileRequest())
				w.Must(err)
				w.Turn()
			}
			if !running() {
				t.Fatal("no worker takes the upload")
			}
			before := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(target)).UID
			c.change(w, filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name))
			w.Run(name, r)
			got := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
			prime := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(target))
			if has := got.Spec.VolumeName == "pvc-"+string(before); has != c.bound || w.Tries != 1 {
				t.Errorf("the target has what was sent: %t, after %d uploads; its volume is %q", has, w.Tries, got.Spec.VolumeName)
			}
			if kept := prime != nil && prime.UID == before; kept == c.bound {
				t.Errorf("the prime with what was sent is there: %t", kept)
			}
		})
	}
}

// TestForgedSourceNamespace: the annotation is a reference that any user may write on their claim, at any time. Nothing is made
// for one that is not granted, and a fill that was begun from a source in the claim's namespace is dropped.
func TestForgedSourceNamespace(t *testing.T) {
	for name, late := range map[string]bool{"from the start": false, "while it is filled": true} {
		t.Run(name, func(t *testing.T) {
			target := from("VolumeCloneSource", "")
			if !late {
				target.Annotations = map[string]string{names.SourceNamespace: "images"}
			}
			w := filltest.New(t, filltest.Scene{Objects: []client.Object{
				filltest.Class(filltest.AtOnce), filltest.Bound("images", "golden"), cloning("images"),
				filltest.Bound(filltest.Team, "golden"), cloning(filltest.Team), target,
			}, Reports: []task.Report{filltest.Retry()}})
			r := build(w)
			step := func(times int) {
				for range times {
					_, err := r.Reconcile(t.Context(), reconcileRequest())
					w.Must(err)
					w.Turn()
				}
			}
			step(4)
			if begun := len(w.Left()["pods"].([]string)) > 0; begun != late {
				t.Fatalf("begun: %t", begun)
			}
			c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
			if late {
				c.Annotations[names.SourceNamespace] = "images"
				w.Must(w.API.Update(t.Context(), c))
				step(3)
				c = filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
			}
			prime := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(c))
			if left := w.Left(); len(left["pods"].([]string)) != 0 || prime != nil || c.Annotations[names.State] != string(state.SourceUngranted) {
				t.Errorf("left are %v, prime %v, it says %s", left, prime != nil, c.Annotations[names.State])
			}
		})
	}
}
