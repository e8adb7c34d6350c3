package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies: the controller never moves bytes itself and runs no guest.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("list dependencies: %v\n%s", err, out)
	}
	for dep := range strings.SplitSeq(string(out), "\n") {
		for _, not := range []string{
			"github.com/berth-vm/berth/internal/transfer", "github.com/berth-vm/berth/internal/launch/guest",
			"github.com/digitalocean/go-libvirt", "libvirt.org/go/libvirtxml",
		} {
			if strings.HasPrefix(dep, not) {
				t.Errorf("the controller contains %s", dep)
			}
		}
	}
}
