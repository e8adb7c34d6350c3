//go:build host

package metrics

import (
	"os/exec"
	"testing"
)

// TestRulesFireAndClear has Prometheus' own tool check the rules and run their tests: each alert is silent, fires, and is silent again.
func TestRulesFireAndClear(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = monitoring
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
