package earlyfill

import (
	"testing"

	"github.com/berth-vm/berth/internal/task"
)

// TestCondemns: which ends of a worker stop its guest. A new reason has to be put somewhere.
func TestCondemns(t *testing.T) {
	for reason, want := range map[task.Reason]bool{
		task.Completed: false, task.Interrupted: false, task.TargetBusy: false, task.TargetFailed: false,
		task.SourceUnreachable: false, task.SourceUnavailable: false, task.SourceTruncated: false,
		task.SourceNotFound: true, task.SourceDenied: true, task.SourceUntrusted: true, task.SourceChanged: true,
		task.ChecksumMismatch: true, task.BadImage: true, task.UnsafeImage: true, task.UnsupportedImage: true, task.DoesNotFit: true, task.BadTask: true,
	} {
		if condemns(reason) != want {
			t.Errorf("%s: %t", reason, !want)
		}
	}
}
