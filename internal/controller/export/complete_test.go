package export

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	exportv1 "github.com/berth-vm/berth/api/export/v1beta1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
)

// TestComplete: nothing is exported of a claim of which not proven is that all its data is there, by whatever way it is filled. The proof
// is the one that clones ask for: here is only that it is asked.
func TestComplete(t *testing.T) {
	volume := &metav1.OwnerReference{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume", Name: "other", UID: "dv", Controller: ptr.To(true)}
	source := &corev1.TypedObjectReference{APIGroup: ptr.To("cdi.kubevirt.io"), Kind: "VolumeImportSource", Name: "web"}
	for name, c := range map[string]struct {
		annotations map[string]string
		owner       *metav1.OwnerReference
		from        *corev1.TypedObjectReference
		phase       corev1.PersistentVolumeClaimPhase
		lacks       string // empty: it is exported
	}{
		"bound, and nothing here fills it": {},
		"not bound":                        {phase: corev1.ClaimPending, lacks: "not bound"},
		"lost":                             {phase: corev1.ClaimLost, lacks: "lost"},
		"of a volume, and nothing is said about it":     {owner: volume, lacks: "being filled by DataVolume other"},
		"of a volume that is being filled":              {owner: volume, annotations: map[string]string{names.MayFill: "dv"}, lacks: "being filled"},
		"of a volume whose worker runs":                 {owner: volume, annotations: map[string]string{names.PodPhase: "Running"}, lacks: "being filled"},
		"of a volume that is full":                      {owner: volume, annotations: map[string]string{names.PodPhase: "Succeeded"}},
		"of a volume that another data side filled":     {owner: volume, annotations: map[string]string{names.PodPhase: "Succeeded", "cdi.kubevirt.io/storage.import.endpoint": "http://a"}},
		"left behind half-filled":                       {annotations: map[string]string{names.MayFill: "dv"}, lacks: "begun"},
		"to be populated, bound, with nothing recorded": {from: source, lacks: "nothing records"},
		"populated":             {from: source, annotations: map[string]string{names.PopulatedFor: "other"}},
		"waiting for an upload": {annotations: map[string]string{"cdi.kubevirt.io/storage.upload.target": ""}, lacks: "an upload"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "other", Annotations: c.annotations},
				Spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: c.from}, Status: corev1.PersistentVolumeClaimStatus{Phase: c.phase}}
			if c.phase == "" {
				claim.Status.Phase = corev1.ClaimBound
			}
			if c.owner != nil {
				claim.OwnerReferences = []metav1.OwnerReference{*c.owner}
			}
			if proof, _ := clonesource.Complete(claim); (proof == clonesource.Unproven) != (c.lacks != "") {
				t.Fatalf("clones would go by %q", proof)
			}
			w := newWorld(t, claim)
			e := w.run(of(exportv1.Claim, "other"))
			said := e.Status.Conditions[0].Message
			if exported := e.Status.Phase == exportv1.Ready; exported != (c.lacks == "") || !strings.Contains(said, c.lacks) || exported != (w.server() != nil) {
				t.Errorf("it is %s: %s", e.Status.Phase, said)
			}
		})
	}
}

// TestWriters: a pod that may write keeps an export waiting, whatever its labels say.
func TestWriters(t *testing.T) {
	disk := render.Disk{Claim: "disk"}
	block := render.Disk{Claim: "disk", Block: true}
	made := func(w render.Worker) *corev1.Pod {
		w.Namespace, w.Name, w.Role = "team", "user", render.RoleImport
		pod, err := w.Pod()
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	labelled := user("disk")
	labelled.Labels = render.Labels(render.RoleServe)
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		uses bool
	}{
		"anybody's":                   {user("disk"), true},
		"anybody's with our labels":   {labelled, true},
		"a worker that fills it":      {made(render.Worker{Command: "run", Target: &disk}), true},
		"a worker that reads it":      {made(render.Worker{Command: "run", Target: &render.Disk{Claim: "next"}, Source: &disk}), false},
		"one that fills a device":     {made(render.Worker{Command: "run", Target: &block}), true},
		"one that serves from device": {made(render.Worker{Command: "serve", Source: &block}), false},
	} {
		w := newWorld(t)
		w.must(w.api.Create(context.Background(), c.pod))
		e := w.run(of(exportv1.Claim, "disk"))
		if waits := e.Status.Phase != exportv1.Ready; waits != c.uses {
			t.Errorf("%s: %s: %s", name, e.Status.Phase, e.Status.Conditions[0].Message)
		}
	}
}
