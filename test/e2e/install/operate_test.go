//go:build e2e

package install

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestOperatePage runs the commands of docs/operate.md as they stand there.
func TestOperatePage(t *testing.T) {
	s := newSite(t)
	s.kubectl(strings.ReplaceAll(machine, "kept", "web"), "apply", "-f", "-")
	s.waitField("vm", "web", ".status.printableStatus", "Running")
	node := s.launcher().Spec.NodeName
	t.Cleanup(func() {
		_, _ = s.command("bin/kubectl", "--kubeconfig", framework.Kubeconfig(t), "uncordon", node) // also if the test ends early
	})
	page, err := os.ReadFile("../../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	run := 0
	for line := range strings.Lines(string(page)) {
		command, ok := strings.CutPrefix(line, "    ")
		if !ok {
			continue
		}
		run++
		words := strings.Fields(strings.ReplaceAll(command, "NODE", node))
		args := append([]string{"--kubeconfig", framework.Kubeconfig(t), "-n", s.Namespace}, words[1:]...)
		if strings.Contains(command, " -n ") || strings.Contains(command, " -A") {
			args = append([]string{"--kubeconfig", framework.Kubeconfig(t)}, words[1:]...)
		}
		if out, err := s.command("bin/"+words[0], args...); err != nil {
			t.Errorf("%s: %v\n%s", strings.TrimSpace(command), err, out)
		}
	}
	if run < 15 {
		t.Errorf("only %d commands were found on the page", run)
	}
}
