package uploadtarget

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/controller/filltest"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
)

const name = "disk"

func target(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := filltest.Bound(filltest.Team, name)
	c.Annotations = map[string]string{annTarget: ""}
	if change != nil {
		change(c)
	}
	return c
}

func pending(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeName, c.Status = "", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
}

// TestLoop: wherever the controller is interrupted, a claim somebody made ends up the same, and still theirs.
func TestLoop(t *testing.T) {
	waits := filltest.Class(filltest.Waits)
	for want, sc := range map[state.Reason]struct {
		claim   *corev1.PersistentVolumeClaim
		reports []task.Report
	}{
		state.Upload.Reason(state.Succeeded): {target(nil), []task.Report{filltest.Done()}},
		state.Upload.Reason(state.GivenUp):   {target(nil), []task.Report{filltest.Fatal()}},
		state.Held:                           {target(pending), nil},
		"": {target(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(cdiv1.SchemeGroupVersion.Group), Kind: "VolumeUploadSource", Name: "x"}
		}), nil}, // the populator's
	} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			scene := filltest.Scene{Objects: append(filltest.Driver(), waits, sc.claim), Reports: sc.reports}
			calm := filltest.Harm(t, scene, name, build, outcome)
			c := filltest.Get[corev1.PersistentVolumeClaim](calm, filltest.Team, name)
			if said := c.Annotations[cluster.AnnState]; said != string(want) {
				t.Errorf("it says %s, want %s: %v", said, want, c.Annotations)
			}
			if _, still := c.Annotations[annTarget]; len(c.OwnerReferences) != 0 || !still {
				t.Errorf("it is not as it was: owners %v, annotations %v", c.OwnerReferences, c.Annotations)
			}
		})
	}
}

func TestMarked(t *testing.T) {
	owned := func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: name, Controller: ptr.To(true)}}
	}
	if !marked(target(nil)) || marked(target(owned)) || marked(filltest.Bound(filltest.Team, name)) {
		t.Error("only a claim that says so and is nobody's takes an upload")
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

// TestDue: what changes for a namespace concerns the claims in it, what changes for all concerns all, and none that is full or
// somebody else's.
func TestDue(t *testing.T) {
	in := func(namespace, name string, annotations map[string]string) client.Object {
		c := filltest.Bound(namespace, name)
		c.Annotations = annotations
		return c
	}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{
		in(filltest.Team, "waits", map[string]string{annTarget: ""}), in("other", "waits", map[string]string{annTarget: ""}),
		in(filltest.Team, "full", map[string]string{annTarget: "", fill.AnnPodPhase: string(corev1.PodSucceeded)}),
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
	left["annotations"], left["owners"] = c.Annotations, c.OwnerReferences
	return left
}
