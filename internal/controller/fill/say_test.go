package fill

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/state"
)

// TestLastErrorStaysInSight: while the next try is placed and runs, the message still has why the last one failed.
func TestLastErrorStaysInSight(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	s := &Seen{claim: claim}
	for _, worker := range []volume.Worker{volume.Pending, volume.Running} {
		for _, stage := range []state.Stage{state.Scheduled, state.InProgress} {
			text := func() string { return s.state(state.Import.Reason(stage), volume.Facts{Worker: worker}).Text() }
			claim.Annotations = map[string]string{}
			if got := text(); strings.Contains(got, "try") {
				t.Errorf("%s, first try: %q", stage, got)
			}
			claim.Annotations = map[string]string{annRestarts: "2", annRunMessage: "the server said 404"}
			if got, want := text(), "try 3, after try 2 failed: the server said 404"; !strings.Contains(got, want) {
				t.Errorf("%s: %q does not say %q", stage, got, want)
			}
		}
	}
}
