package machine

import (
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// TestOutdated: after an upgrade a guest runs on as it is, and its instance says that it is of the version before, until it starts anew.
func TestOutdated(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways})
	w.settle()
	check := func(when string, want bool) {
		t.Helper()
		if _, got := w.instance().Labels[kubevirt.LabelOutdated]; got != want {
			t.Errorf("%s: the instance is called outdated: %t, want %t", when, got, want)
		}
	}
	check("at first", false)
	before := w.instance().UID
	w.r.options.Image = "launcher:next"
	w.settle()
	check("after the upgrade", true)
	if w.instance().UID != before || w.instance().Status.Phase != kubevirt.PhaseRunning {
		t.Error("the upgrade has disturbed the guest")
	}
	requests(kubevirt.StopRequest, kubevirt.StartRequest)(w)
	w.settle()
	check("after a restart", false)
}
