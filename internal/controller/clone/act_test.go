package clone

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/names"
)

// TestWorked: whether a worker makes the clone is known while it does so, though nothing is chosen then.
func TestWorked(t *testing.T) {
	for way, want := range map[clone.Strategy]bool{clone.Copy: true, clone.Stream: true, clone.CSIClone: false, clone.Snapshot: false, "": false} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.CloneWay: string(way)}}}
		s := &Seen{target: Target{Claim: claim, Worker: &corev1.Pod{}}}
		s.decide()
		if got := s.Worked(); got != want {
			t.Errorf("a claim made by %q: a worker makes it is %t", way, got)
		}
		s.chosen, s.strategy = true, clone.Stream
		if !s.Worked() {
			t.Errorf("a claim made by %q, and now by a stream: no worker makes it", way)
		}
	}
}
