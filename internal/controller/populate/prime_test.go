package populate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	reach "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/controller/filltest"
	"github.com/berth-vm/berth/internal/golden"
	"github.com/berth-vm/berth/internal/task"
)

// TestPrime: what is made for a claim, as it is made.
func TestPrime(t *testing.T) {
	target := from("VolumeImportSource", "")
	target.Labels = map[string]string{"team": "a"}
	target.Annotations = map[string]string{
		reach.AnnSelectedNode: filltest.Node, "linkerd.io/inject": "enabled", "note": "the target's own", fill.AnnPodPhase: "Succeeded",
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
	permission := grant()
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
	}
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
	prime := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(c))
	if left := w.Left(); len(left["pods"].([]string)) != 0 || left["secrets"] != 0 || prime != nil || len(c.Finalizers) != 0 {
		t.Errorf("left are %v, prime %v, finalizers %v", left, prime != nil, c.Finalizers)
	}
}

// TestReplaced: a clone that is not full is begun anew when its source stands for something else.
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
	target.Annotations = map[string]string{reach.AnnSelectedNode: filltest.Node}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.Waits), importing(), target}})
	r := build(w)
	step := func() {
		_, err := r.Reconcile(t.Context(), reconcileRequest())
		w.Must(err)
	}
	step()
	prime := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(target))
	delete(prime.Annotations, reach.AnnSelectedNode)
	w.Must(w.API.Update(t.Context(), prime))
	step()
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, name)
	prime = filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, primeName(target))
	if node(c) != "" || prime != nil {
		t.Errorf("the target's node is %q, the prime there: %v", node(c), prime != nil)
	}
}
