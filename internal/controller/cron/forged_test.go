package cron

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/testing/filltest"
	"github.com/berth-vm/berth/internal/token"
)

// TestAProofInATemplate: a proof in the template may be copied from another user, so it is not put on the volumes that the cron makes.
func TestAProofInATemplate(t *testing.T) {
	c := daily(func(c *cdiv1.DataImportCron) {
		c.Spec.Template.Annotations = map[string]string{token.Annotation: "stolen", "note": "kept"}
	})
	v := (&seen{cron: c, digest: digest1}).newImport()
	if _, there := v.Annotations[token.Annotation]; there || v.Annotations["note"] != "kept" {
		t.Errorf("annotations of an import: %v", v.Annotations)
	}
}

// TestAClaimOfAnotherNamespace: a cron says nothing of it, not even whether it exists, and imports nothing.
func TestAClaimOfAnotherNamespace(t *testing.T) {
	theirs := filltest.Bound("golden", "secret")
	theirs.UID = "their-uid"
	c := daily(func(c *cdiv1.DataImportCron) {
		c.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: "secret"}}
	})
	said := map[bool]string{}
	for _, exists := range []bool{true, false} {
		objects := []client.Object{filltest.Class(filltest.AtOnce), c.DeepCopy()}
		if exists {
			objects = append(objects, theirs)
		}
		w := filltest.New(t, filltest.Scene{Objects: objects})
		r := build("")(w)
		for range 3 {
			_, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: filltest.Team, Name: name}})
			w.Must(err)
		}
		now := filltest.Get[cdiv1.DataImportCron](w, filltest.Team, name)
		for _, condition := range now.Status.Conditions {
			said[exists] += condition.Message + "\n"
		}
		for _, value := range now.Annotations {
			said[exists] += value + "\n"
		}
		var made cdiv1.DataVolumeList
		w.Must(w.API.List(context.Background(), &made))
		if len(made.Items) > 0 || strings.Contains(said[exists], "their-uid") {
			t.Errorf("made %d volumes, said %q", len(made.Items), said[exists])
		}
	}
	if said[true] != said[false] || !strings.Contains(said[true], "its own namespace only") {
		t.Errorf("said %q of a claim that exists and %q of one that does not", said[true], said[false])
	}
}

// TestAPollThatIsNone: a pod that only has the name of the poll does not say which version there is.
func TestAPollThatIsNone(t *testing.T) {
	c := daily(nil)
	forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: pollName(c)}}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), c, forged}})
	s, err := build("")(w).(importer).observe(context.Background(), c)
	w.Must(err)
	if s.poll != nil {
		t.Error("taken for the poll")
	}
}
