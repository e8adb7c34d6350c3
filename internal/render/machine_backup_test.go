package render

import (
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
)

// TestPodsAreBackedUp: an instance is left out of backups, and its pods are not, for they say how its guest is frozen.
func TestPodsAreBackedUp(t *testing.T) {
	i := &kubevirt.VirtualMachineInstance{}
	i.Labels = map[string]string{names.NoBackup: "true", "app": "web"}
	if got := labelsOf(i); got[names.NoBackup] != "" || got["app"] != "web" {
		t.Errorf("its pods are labelled %v", got)
	}
}
