package state

import (
	"strings"
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func TestRowsAreConsistent(t *testing.T) {
	seen := map[Reason]bool{}
	for _, r := range append(Rows(), Populations()...) {
		if seen[r.Reason] {
			t.Errorf("%s: two rows", r.Reason)
		}
		seen[r.Reason] = true
		if r.Ready != (r.Phase == cdiv1.Succeeded) {
			t.Errorf("%s: ready is %t in phase %s", r.Reason, r.Ready, r.Phase)
		}
		if r.Ready && (r.Warn || r.Run != Completed || r.Bound != AsClaim) {
			t.Errorf("%s: ready, yet something is wrong or still moving", r.Reason)
		}
		if r.Phase == cdiv1.Failed && (!r.Warn || r.Run != Broken) {
			t.Errorf("%s: failed without a warning and an error that clients see", r.Reason)
		}
		if r.Message == "" || r.Phase == "" {
			t.Errorf("%s: a row needs a phase and a message", r.Reason)
		}
	}
	for _, f := range []Flow{Import, Upload, Clone} {
		for _, s := range []Stage{
			Scheduled, Unplaceable, Unfetchable, WorkerGoing, CutOff, InProgress, Retrying, GivenUp, Succeeded,
		} {
			if !seen[f.Reason(s)] {
				t.Errorf("%s: no row", f.Reason(s))
			}
		}
	}
}

func TestTextLeavesNoBlanks(t *testing.T) {
	for _, r := range append(Rows(), Populations()...) {
		for _, detail := range []string{"", "because"} {
			s := Of(r.Reason)
			s.Claim, s.Source, s.Detail = "disk", "pvc a/b", detail
			if got := s.Text(); strings.ContainsAny(got, "{}") || strings.HasSuffix(got, "; ") {
				t.Errorf("%s with detail %q: %q", r.Reason, detail, got)
			}
		}
	}
}

func TestUnknownReasonIsShown(t *testing.T) {
	if s := Of("NoSuchReason"); s.Phase != cdiv1.Unknown || !s.Warn {
		t.Errorf("a reason without a row became %+v", s.Row)
	}
}
