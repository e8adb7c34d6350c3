package remember

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestClient: a write is visible to the next read, and a caller that changes its copy changes nothing.
func TestClient(t *testing.T) {
	ctx := t.Context()
	c := Client(fake.NewClientBuilder().WithStatusSubresource(&corev1.Pod{}).Build())
	key := client.ObjectKey{Namespace: "team", Name: "one"}
	reads := func(note string, phase corev1.PodPhase) {
		t.Helper()
		for range 2 {
			var p corev1.Pod
			var all, others corev1.PodList
			if err := c.Get(ctx, key, &p); err != nil || p.Annotations["note"] != note || p.Status.Phase != phase {
				t.Errorf("%v %s, not %q: %v", p.Annotations, p.Status.Phase, note, err)
			}
			if err := c.List(ctx, &all, client.InNamespace("team")); err != nil || len(all.Items) != 1 || all.Items[0].Annotations["note"] != note {
				t.Fatalf("%+v, not %q: %v", all.Items, note, err)
			}
			if err := c.List(ctx, &others, client.InNamespace("other")); err != nil || len(others.Items) != 0 {
				t.Errorf("%+v: %v", others.Items, err)
			}
			p.Annotations, all.Items[0].Annotations["note"] = nil, "changed"
		}
	}
	gone := func() {
		t.Helper()
		if err := c.Get(ctx, key, &corev1.Pod{}); !apierrors.IsNotFound(err) {
			t.Errorf("it is there: %v", err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	gone()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one", Annotations: map[string]string{"note": "made"}}}
	must(c.Create(ctx, p))
	reads("made", "")
	p.Annotations["note"] = "updated"
	must(c.Update(ctx, p))
	reads("updated", "")
	p.Status.Phase = corev1.PodRunning
	must(c.Status().Update(ctx, p))
	reads("updated", corev1.PodRunning)
	must(c.Patch(ctx, p, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"note":"patched"}}}`))))
	reads("patched", corev1.PodRunning)
	applied := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"namespace": "team", "name": "one", "annotations": map[string]any{"note": "applied"}}}})
	must(c.Apply(ctx, applied, client.FieldOwner("us"), client.ForceOwnership))
	reads("applied", corev1.PodRunning)
	must(c.Delete(ctx, p))
	gone()
}
