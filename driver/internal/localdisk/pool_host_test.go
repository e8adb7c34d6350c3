//go:build host

package localdisk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// TestUnmountedPool: a real disk goes away under a driver, and is not there when it starts again. The volumes are there when
// it is back.
func TestUnmountedPool(t *testing.T) {
	point := poolOn(t, "xfs", 1)
	image := filepath.Join(filepath.Dir(point), "pool.img")
	s := testSettings(point)
	s.Capacity = 0 // all of it: it is a filesystem of its own
	d, err := Open(s, "test", quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	made, err := d.CreateVolume(t.Context(), asking("kept", 16))
	if err != nil {
		t.Fatal(err)
	}
	handle := made.GetVolume().GetVolumeId()
	command(t, "umount", "-l", point)
	if _, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle}); err == nil {
		t.Error("deleted while its disk is not mounted")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s, "test", quiet(t)); err == nil || !strings.Contains(err.Error(), "is not a pool") {
		t.Errorf("opened without its disk: %v", err)
	}
	if left := names(t, point); left != "" {
		t.Errorf("the mount point has %s", left)
	}
	command(t, "mount", "-o", "loop,discard", image, point)
	d, err = Open(s, "test", quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.pool.findVolume(handle); err != nil {
		t.Errorf("mounted again: %v", err)
	}
	if _, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle}); err != nil {
		t.Error(err)
	}
}

// TestUpgradeOfOwnFilesystem: a pool of an earlier driver on its own filesystem continues to work without manual steps.
func TestUpgradeOfOwnFilesystem(t *testing.T) {
	point := poolOn(t, "xfs", 1)
	if err := os.WriteFile(filepath.Join(point, fileNode), []byte("node1"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Open(Settings{Dir: point, Node: "node1", Overcommit: 1, FSType: "ext4"}, "test", quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !d.pool.marker.Upgraded {
		t.Errorf("the marker is %+v", d.pool.marker)
	}
}

// TestHiddenMount: a mount that another one hides cannot be taken away, which is said instead of tried for ever.
func TestHiddenMount(t *testing.T) {
	outer := t.TempDir()
	inner := filepath.Join(outer, "inner")
	mountTmpfs := func(dir string) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
				t.Errorf("umount: %v: %s", err, out)
			}
		})
	}
	mountTmpfs(inner)
	mountTmpfs(outer)
	if err := os.Mkdir(inner, 0o700); err != nil { // where the first one's directory would be
		t.Fatal(err)
	}
	if err := unmount(inner); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "hides it") {
		t.Errorf("a hidden mount: %v", err)
	}
}
