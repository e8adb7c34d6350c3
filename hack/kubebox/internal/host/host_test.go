package host

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOwnedLoops(t *testing.T) {
	ours := loop{number: 3, device: 8, inode: 100, path: "/run/kubebox/nodes/node1/disks/block1.img"}
	stacked := loop{number: 1, path: "/loop3", behind: ours.rdev()}
	stackedTwice := loop{number: 0, path: "/loop1", behind: stacked.rdev()}
	pooled := loop{number: 2, device: ours.rdev(), inode: 100, path: "/volumes/v1/disk.img"}
	foreign := loop{number: 4, device: 8, inode: 7, path: "/home/me/disk.img"}
	foreignDeleted := loop{number: 5, device: 8, inode: 9, path: "/home/me/disk.img (deleted)"}
	orphan := loop{number: 6, device: 8, inode: 8, path: "/nodes/node1/disks/fs1.img (deleted)"}
	all := []loop{stackedTwice, stacked, pooled, ours, foreign, foreignDeleted, orphan}

	var got []int
	for _, l := range owned(all, map[fileID]bool{{8, 100}: true}) {
		got = append(got, l.number)
	}
	// Freed in the reverse of this order, each device goes before the one it is stacked on.
	if diff := cmp.Diff([]int{3, 6, 1, 2, 0}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFilesBelowLeavesOutImages(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"nodes/node1/disks/fs1.img", "nodes/node1/var/lib/containerd/layer", "images/blob"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filesBelow(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("got %d files, %v, want the disk alone", len(files), err)
	}
	if files, err := filesBelow(filepath.Join(dir, "gone")); err != nil || len(files) != 0 {
		t.Errorf("of a directory that is gone: got %v, %v", files, err)
	}
}

func TestOverlaps(t *testing.T) {
	for _, test := range []struct {
		route string
		want  bool
	}{{"10.88.3.0/24", true}, {"10.0.0.0/8", true}, {"10.88.0.0/16", true}, {"10.89.0.0/16", false}, {"192.168.0.0/16", false}} {
		_, route, err := net.ParseCIDR(test.route)
		if err != nil {
			t.Fatal(err)
		}
		if got := overlaps(route, "10.88.0.0/16"); got != test.want {
			t.Errorf("%s overlaps: %t, want %t", test.route, got, test.want)
		}
	}
}

func TestHierarchies(t *testing.T) {
	v1 := t.TempDir()
	for _, dir := range []string{"cpu,cpuacct", "memory"} {
		if err := os.Mkdir(filepath.Join(v1, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("cpu,cpuacct", filepath.Join(v1, "cpu")); err != nil {
		t.Fatal(err)
	}
	got, unified, err := hierarchies(v1)
	if want := []string{v1 + "/cpu,cpuacct", v1 + "/memory"}; err != nil || unified || !cmp.Equal(want, got) {
		t.Errorf("v1: got %v, %t, %v, want %v", got, unified, err, want)
	}
	v2 := t.TempDir()
	if err := os.WriteFile(filepath.Join(v2, "cgroup.controllers"), []byte("cpu memory"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, unified, err := hierarchies(v2); err != nil || !unified || len(got) != 1 {
		t.Errorf("v2: got %v, %t, %v", got, unified, err)
	}
	if _, _, err := hierarchies(t.TempDir()); err == nil {
		t.Error("an empty directory is taken for cgroups")
	}
}

func TestRemoveTreeOfNothing(t *testing.T) {
	if err := removeTree(filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Error(err)
	}
}

func TestInstallCommandIsWhatAUserWouldType(t *testing.T) {
	got := InstallCommand([]string{"runc", "containerd"})
	if !strings.HasPrefix(got, "apt-get install") || !strings.HasSuffix(got, "runc containerd") {
		t.Error(got)
	}
}
