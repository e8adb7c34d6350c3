package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
)

// TestTurn: a change that is seen again before it is in the cache is reported once; one that comes back is reported again.
func TestTurn(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	w := New(nil, recorder, nil)
	one := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "2"}}
	for _, e := range []struct {
		about  *corev1.Pod
		reason string
	}{{one, "A"}, {one, "A"}, {other, "A"}, {one, "B"}, {one, "B"}, {one, "A"}} {
		w.Turn(e.about, corev1.EventTypeNormal, e.reason, "text")
	}
	if n := len(recorder.Events); n != 4 {
		t.Errorf("%d events", n)
	}
}
