package disks

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestWritable: a guest may write what its machine says, else all of its disk; of a disk of unknown size, only so much.
func TestWritable(t *testing.T) {
	const most = launcherapi.CopyRoom
	said := new(resource.MustParse("100Gi"))
	for _, c := range []struct {
		name             string
		capacity         *kubevirt.Quantity
		size, most, want int64
	}{
		{name: "a claim's disk", size: 1 << 40, want: 1 << 40},
		{name: "a claim's disk, said", capacity: said, size: 1 << 40, want: 100 << 30},
		{name: "an image's small disk", size: 9 << 30, most: most, want: 9 << 30},
		{name: "an image that says it is huge", size: 1 << 60, most: most, want: most},
		{name: "an image that says it is huge, said", capacity: said, size: 1 << 60, want: 100 << 30},
	} {
		if got := writable(&kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Capacity: c.capacity}, c.size, c.most); got != c.want {
			t.Errorf("%s: it may write %d bytes, want %d", c.name, got, c.want)
		}
	}
}
