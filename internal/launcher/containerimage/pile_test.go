package containerimage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/testing/imagetest"
)

// TestPile: a file for each layer, each over the one before, and one with the room on top; the disk is as large as the machine says.
func TestPile(t *testing.T) {
	dir := t.TempDir()
	b, from, err := Stack(t.Context(), imagetest.Pulled(t, []string{"a"}, []string{".wh..wh..opq", "b"}, []string{"c"}), dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var chain []string
	for at := &b; at != nil; at = at.Master {
		chain = append(chain, filepath.Base(at.Path))
		if at.Format != "qcow2" || filepath.Dir(at.Path) != dir {
			t.Errorf("%s is %s", at.Path, at.Format)
		}
	}
	if diff := cmp.Diff([]string{"top.qcow2", "002.qcow2", "001.qcow2", "000.qcow2"}, chain); diff != "" {
		t.Errorf("the stack (-want +got):\n%s", diff)
	}
	if from != 1 {
		t.Errorf("the lowest layer that counts is %d: the second takes away all below it", from)
	}
	if size, err := backing.VirtualSize(b.Path); err != nil || size < imageRoom || size > imageRoom+64<<20 {
		t.Errorf("the disk has %d bytes, %v", size, err)
	}
	size := resource.MustParse("1Gi")
	b, _, err = Stack(t.Context(), imagetest.Pulled(t, []string{"a"}), t.TempDir(), &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Size: &size}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := backing.VirtualSize(b.Path); err != nil || got != size.Value() {
		t.Errorf("a disk of 1Gi has %d bytes, %v", got, err)
	}
	size = resource.MustParse("2Mi")
	if _, _, err := Stack(t.Context(), imagetest.Pulled(t, []string{"a"}), t.TempDir(), &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Size: &size}, nil); err == nil || !strings.Contains(err.Error(), "leaves no room") {
		t.Errorf("a disk that is smaller than its layers: %v", err)
	}
}

// TestDiskInside: an image without a program is a container disk, or nothing that can be run.
func TestDiskInside(t *testing.T) {
	dir := t.TempDir()
	b, err := diskInside(t.Context(), imagetest.Pulled(t, []string{"etc/x"}, []string{"disk/root.img"}), dir)
	if err != nil || b.Format != "raw" || b.Orders != "" {
		t.Fatalf("%+v, %v", b, err)
	}
	if text, err := os.ReadFile(b.Path); err != nil || string(text) != "disk/root.img" {
		t.Errorf("the disk is %q, %v", text, err)
	}
	_, err = diskInside(t.Context(), imagetest.Pulled(t, []string{"etc/x"}), t.TempDir())
	if err == nil || !strings.HasSuffix(err.Error(), "has no entrypoint, no command, and no disk under /disk/: say what to run with command") {
		t.Errorf("an image with nothing to run: %v", err)
	}
}
