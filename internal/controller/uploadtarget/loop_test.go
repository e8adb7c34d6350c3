package uploadtarget

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
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
