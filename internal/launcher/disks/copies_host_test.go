//go:build host

package disks

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/progress"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/testing/hosttool"
)

// copyOf makes a copy of a master of 8 MiB that is 7s all over.
func copyOf(t *testing.T, c kubevirt.DiskCopy) (backing.Disk, string, error) {
	t.Helper()
	dir := t.TempDir()
	master := filepath.Join(dir, "master")
	if err := os.WriteFile(master, bytes.Repeat([]byte{7}, 8<<20), 0o400); err != nil {
		t.Fatal(err)
	}
	k := &Maker{path: func(volume string) string { return filepath.Join(dir, volume) }, note: progress.New().Change}
	b, err := k.copy(t.Context(), kubevirt.Volume{Name: "copy", Copy: &c}, backing.Disk{Path: master, Format: "raw"})
	return b, master, err
}

// opened is the copy as libvirt has QEMU open it.
func opened(b backing.Disk) string {
	return "driver=qcow2,discard=unmap,file.driver=raw,file.discard=unmap,file.size=" + strconv.FormatInt(b.Limit, 10) +
		",file.file.driver=file,file.file.discard=unmap,file.file.filename=" + b.Path
}

// TestCopyOnWrite: a copy begins as its master, which stays as it is; it may be larger, and it is full when the guest has written
// what it may, not before, and continues when the guest gives something up.
func TestCopyOnWrite(t *testing.T) {
	q := func(s string) *kubevirt.Quantity { return new(resource.MustParse(s)) }
	b, master, err := copyOf(t, kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Capacity: q("4Mi"), Size: q("16Mi")})
	if err != nil {
		t.Fatal(err)
	}
	io := func(commands ...string) string {
		args := []string{"--image-opts", opened(b)}
		for _, c := range commands {
			args = append(args, "-c", c)
		}
		out, _ := exec.Command("qemu-io", args...).CombinedOutput()
		return string(out)
	}
	if out := io("read -P 7 0 8M", "read -P 0 8M 8M", "write -P 1 1M 4M", "read -P 1 1M 4M", "write -P 2 12M 1M"); strings.Contains(out, "rror") || strings.Contains(out, "failed") {
		// 4 MiB are certain; a little more may fit where the tables are small
		t.Errorf("within its room: %s", out)
	}
	if out := io("write -P 3 8M 8M"); !strings.Contains(out, "No space left on device") {
		t.Errorf("beyond its room: %s", out)
	}
	if out := io("discard 1M 4M", "write -P 3 8M 3M", "read -P 3 8M 3M"); strings.Contains(out, "rror") || strings.Contains(out, "failed") {
		t.Errorf("after the guest gave something up: %s", out)
	}
	hosttool.Run(t, "qemu-img", "check", "-q", b.Path)
	if got, err := os.ReadFile(master); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{7}, 8<<20)) {
		t.Errorf("the master was changed: %v", err)
	}
	if info, err := os.Stat(b.Path); err != nil || info.Size() != b.Limit {
		t.Errorf("the file is not within its limit of %d: %v, %v", b.Limit, info.Size(), err)
	}
}

// TestCopyRefused: what makes no sense is said before the guest starts.
func TestCopyRefused(t *testing.T) {
	q := func(s string) *kubevirt.Quantity { return new(resource.MustParse(s)) }
	for want, c := range map[string]kubevirt.DiskCopy{
		"a copy cannot be smaller than its master": {Mode: kubevirt.CopyOnWrite, Size: q("4Mi")},
		"it must be more than 0":                   {Mode: kubevirt.CopyOnWrite, Capacity: q("0")},
		"a copy of mode clone needs as much room":  {Mode: kubevirt.CopyClone, Capacity: q("4Mi")},
		"a copy of mode copy-on-read needs":        {Mode: kubevirt.CopyOnRead, Capacity: q("15Mi"), Size: q("16Mi")},
	} {
		if _, _, err := copyOf(t, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v instead of %q", err, want)
		}
	}
}

// TestClone: the whole master is in the copy before it is used, zeroes take no space, and no reference to the master is left.
func TestClone(t *testing.T) {
	b, master, err := copyOf(t, kubevirt.DiskCopy{Mode: kubevirt.CopyClone, Size: new(resource.MustParse("64Mi"))})
	if err != nil {
		t.Fatal(err)
	}
	if b.Master != nil {
		t.Error("it lies over its master")
	}
	if err := os.Remove(master); err != nil {
		t.Fatal(err)
	}
	out := hosttool.Run(t, "qemu-io", "--image-opts", opened(b), "-c", "read -P 7 0 8M", "-c", "read -P 0 8M 56M")
	if strings.Contains(out, "rror") || strings.Contains(out, "failed") {
		t.Error(out)
	}
	if n := backing.Stored(b.Path); n < 8<<20 || n > 10<<20 {
		t.Errorf("it takes %d bytes", n)
	}
}

// TestWholeCopy: the disk of a copy that comes along with its guest is empty, as large as the guest's, within its room, and over no master; one
// that a launcher left there before is replaced.
func TestWholeCopy(t *testing.T) {
	dir := t.TempDir()
	copies := progress.New()
	k := &Maker{machine: launcherapi.Machine{Whole: map[string]int64{"copy": 16 << 20}}, path: func(volume string) string { return filepath.Join(dir, volume) }, note: copies.Change}
	v := kubevirt.Volume{Name: "copy", Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyClone, Capacity: new(resource.MustParse("16Mi"))}}
	if err := os.WriteFile(k.path("copy"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := k.disk(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	size, err := backing.VirtualSize(b.Path)
	if err != nil || size != 16<<20 || b.Master != nil || !b.Copied || b.Limit == 0 {
		t.Errorf("%d bytes, %+v, %v", size, b, err)
	}
	out := hosttool.Run(t, "qemu-io", "--image-opts", opened(b), "-c", "read -P 0 0 16M", "-c", "write -P 3 0 16M")
	if strings.Contains(out, "rror") || strings.Contains(out, "failed") {
		t.Error(out)
	}
	if said := copies.Now()["copy"]; !said.LetGo || said.Size != 16<<20 || said.Mode != kubevirt.CopyClone {
		t.Errorf("it reports %+v", said)
	}
	k.machine.Whole["copy"] = 0
	if _, err := k.disk(t.Context(), v); err == nil {
		t.Error("a copy without a size was made")
	}
}
