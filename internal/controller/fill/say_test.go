package fill

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
)

// TestLastErrorStaysInSight: while the next try is placed and runs, the message still has why the last one failed.
func TestLastErrorStaysInSight(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	s := &Seen{claim: claim}
	for _, worker := range []volume.Worker{volume.Pending, volume.Running} {
		for _, stage := range []state.Stage{state.Scheduled, state.InProgress} {
			text := func() string {
				return message{s}.state(state.Import.Reason(stage), volume.Facts{Worker: worker}).Text()
			}
			claim.Annotations = map[string]string{}
			if got := text(); strings.Contains(got, "try") {
				t.Errorf("%s, first try: %q", stage, got)
			}
			claim.Annotations = map[string]string{names.Restarts: "2", names.RunMessage: "the server said 404"}
			if got, want := text(), "try 3, after try 2 failed: the server said 404"; !strings.Contains(got, want) {
				t.Errorf("%s: %q does not say %q", stage, got, want)
			}
		}
	}
}

// TestChecksumErrorIsNamed: clients tell a wrong checksum from other errors by the Running condition, while the worker is there
// and when it is gone.
func TestChecksumErrorIsNamed(t *testing.T) {
	for reason, want := range map[task.Reason]string{task.ChecksumMismatch: "ChecksumError", task.BadImage: "Error"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		s := &Seen{claim: claim, report: &task.Report{Reason: reason, Detail: "why"}}
		say := func(f volume.Facts) state.State { return message{s}.state(state.Import.Reason(state.GivenUp), f) }
		if got := say(volume.Facts{Worker: volume.Fatal}); got.RunReason() != want || got.Reason != "ImportFailed" {
			t.Errorf("%s: Running says %s, the event %s", reason, got.RunReason(), got.Reason)
		}
		claim.Annotations[names.RunReason], s.report = string(s.runReason()), nil
		if got := say(volume.Facts{Data: volume.Condemned}); got.RunReason() != want {
			t.Errorf("%s, once the worker is gone: Running says %s", reason, got.RunReason())
		}
	}
}
