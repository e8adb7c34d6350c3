package machine

import (
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
)

// TestImageStays: a disk of a container image's layers is made on its node, and is not sent, whatever its copy is.
func TestImageStays(t *testing.T) {
	v := kubevirt.Volume{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerImage: &kubevirt.ContainerImageSource{Image: "i"}}}
	for _, mode := range []kubevirt.CopyMode{"", kubevirt.CopyOnWrite, kubevirt.CopyClone} {
		v.Copy = &kubevirt.DiskCopy{Mode: mode}
		if cause, _ := (&run{}).fixedDisk(v); cause != state.CauseImage {
			t.Errorf("with a copy of mode %q it stays because of %q", mode, cause)
		}
	}
}
