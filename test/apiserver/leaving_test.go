//go:build apiserver

package apiserver

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
)

// TestNamespaceLeaving: the API server says of a namespace that is being deleted what our writer takes for it, to objects that are
// created and to those that are applied. No reconciler then tries again or complains.
func TestNamespaceLeaving(t *testing.T) {
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "leaving"}}
	create(t, admin, space)
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "leaving", Name: "kept", Finalizers: []string{"berth.dev/test"}}}
	create(t, admin, kept)
	t.Cleanup(func() { // the namespace can go then
		_ = admin.Patch(t.Context(), kept, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	})
	must(t, admin.Delete(t.Context(), space))
	eventually(t, "the namespace is being deleted", func() (bool, error) {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(space), space)
		return err == nil && space.Status.Phase == corev1.NamespaceTerminating, err
	})
	w := cluster.New(admin, events.NewFakeRecorder(10), clock.RealClock{})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "leaving", Name: "worker"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: "berth"}}},
	}
	for name, err := range map[string]error{
		"created": w.Create(t.Context(), pod),
		"applied": w.Apply(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "leaving", Name: "keys"}}),
	} {
		if !errors.Is(err, cluster.ErrNamespaceLeaving) {
			t.Errorf("what is %s: %v", name, err)
		}
	}
}
