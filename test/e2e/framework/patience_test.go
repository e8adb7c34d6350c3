//go:build e2e

package framework

import (
	"testing"
	"time"
)

// TestPatience: a limit is as it is on a busy machine, longer at a higher load, and never without an end.
func TestPatience(t *testing.T) {
	for loadavg, want := range map[string]float64{"0.50 1 1 1/2 3": 1, "8.00 1 1": 1, "24.00 9 9": 3, "900.00 9 9": 4, "nonsense": 1, "": 1} {
		if got := stretch(loadavg, 2); got != want {
			t.Errorf("at a load of %q limits are %g times as long, want %g", loadavg, got, want)
		}
	}
	start := time.Now()
	p := patience{time.Minute, start}
	for seconds, want := range []bool{false, false, true} { // 20 s of the limit each
		if got := p.over(start.Add(time.Duration(seconds+1)*time.Minute), 3); got != want {
			t.Errorf("after %d minutes at three times the time it is over: %t", seconds+1, got)
		}
	}
}
