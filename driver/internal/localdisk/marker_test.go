package localdisk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// names lists what is in a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// TestUnmarked: a directory without a marker is not a pool, and nothing is written to it, because it may be the mount point of a
// pool that is not mounted. A marked directory on a filesystem that holds other data needs a capacity.
func TestUnmarked(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		files    map[string]string
		capacity int64
		says     string
	}{
		"bare":              {nil, 1 << 30, "is not a pool: pool.json is missing. If the pool's disk is not mounted, mount it."},
		"earlier driver":    {map[string]string{fileNode: "node1"}, 1 << 30, "was used by an earlier version of the driver and is not a filesystem of its own"},
		"other node":        {map[string]string{fileMarker: `{"version":1,"id":"0123456789abcdef","node":"node2"}`}, 1 << 30, "belongs to node node2"},
		"newer":             {map[string]string{fileMarker: `{"version":2,"id":"0123456789abcdef","node":"node1"}`}, 1 << 30, "its version is 2"},
		"id that is a path": {map[string]string{fileMarker: `{"version":1,"id":"../../../../etc/","node":"node1"}`}, 1 << 30, "is not one of a pool"},
		"garbage":           {map[string]string{fileMarker: "yes"}, 1 << 30, "decode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range row.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := names(t, dir)
			s := Settings{Dir: dir, Node: "node1", Overcommit: 1, FSType: "ext4", Capacity: row.capacity}
			if _, err := Open(s, "test", nil); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("opened with %v, want %q", err, row.says)
			}
			if after := names(t, dir); after != before {
				t.Errorf("the directory has %q now, and had %q", after, before)
			}
		})
	}
	dir := t.TempDir()
	s := testSettings(dir)
	s.Capacity = 0
	if _, err := Open(s, "test", nil); err == nil || !strings.Contains(err.Error(), "say with --capacity how much of it the pool may fill") {
		t.Errorf("all of a filesystem that is not its own: %v", err)
	}
}

// TestPoolExchanged: what is deleted in another pool of the same node is still in the first one, and comes back with it.
func TestPoolExchanged(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pool")
	start := func() (*Driver, func()) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		d, err := Open(testSettings(dir), "test", quiet(t))
		if err != nil {
			t.Fatal(err)
		}
		return d, func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	move := func(to string) {
		if err := os.Rename(dir, dir+to); err != nil {
			t.Fatal(err)
		}
	}
	first, end := start()
	made, err := first.CreateVolume(t.Context(), asking("kept", 4))
	if err != nil {
		t.Fatal(err)
	}
	handle := made.GetVolume().GetVolumeId()
	snap, err := first.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: handle})
	if err != nil {
		t.Fatal(err)
	}
	end()
	move(".first")

	second, end := start()
	for what, err := range map[string]error{
		"volume":   second.delete(t.Context(), kindVolume, handle),
		"snapshot": second.delete(t.Context(), kindSnapshot, snap.GetSnapshot().GetSnapshotId()),
		"early":    second.delete(t.Context(), kindVolume, newID(kindVolume, "early", "node1").String()),
		"newer":    second.delete(t.Context(), kindVolume, handle+"/2"),
	} {
		if status.Code(err) != codes.FailedPrecondition && status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: deleted in another pool with %v", what, err)
		}
	}
	if err := second.delete(t.Context(), kindVolume, "vol-of-a-newer-driver"); status.Code(err) != codes.NotFound {
		t.Errorf("a handle that cannot be read is deleted with %v", err)
	}
	again, err := second.CreateVolume(t.Context(), asking("kept", 4))
	if err != nil || again.GetVolume().GetVolumeId() == handle {
		t.Errorf("the same name in another pool: %v, %v", again, err)
	}
	end()
	move(".second")
	if err := os.Rename(dir+".first", dir); err != nil {
		t.Fatal(err)
	}

	first, end = start()
	defer end()
	if _, err := first.pool.findVolume(handle); err != nil {
		t.Errorf("back in its pool: %v", err)
	}
	if err := first.delete(t.Context(), kindVolume, handle); err != nil {
		t.Error(err)
	}
	if _, err := first.pool.findVolume(handle); status.Code(err) != codes.NotFound {
		t.Errorf("deleted: %v", err)
	}
}

// TestPoolVanishes: a pool that is unmounted or covered while the driver runs is not an empty one.
func TestPoolVanishes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pool")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d, c := open(t, testSettings(dir))
	handle := c.mustCreate(t, asking("kept", 4)).GetVolumeId()
	for what, there := range map[string]func() error{
		"nothing":      func() error { return nil },
		"empty":        func() error { return os.Mkdir(dir, 0o700) },
		"another pool": func() error { mustPool(t, dir); return nil },
	} {
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		if err := there(); err != nil {
			t.Fatal(err)
		}
		vanished(t, d, c, handle)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Probe(t.Context(), &csi.ProbeRequest{}); err != nil {
			t.Errorf("%s: it is back: %v", what, err)
		}
	}
}

// mustPool makes another pool in a directory.
func mustPool(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	other, err := Open(testSettings(dir), "test", quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
}

// vanished checks every call that would say something about volumes.
func vanished(t *testing.T, d *Driver, c client, handle string) {
	t.Helper()
	ctx := t.Context()
	calls := map[string]func() error{
		"delete": func() error { _, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: handle}); return err },
		"create": func() error { _, err := c.CreateVolume(ctx, asking("new", 4)); return err },
		"list":   func() error { _, err := c.ListVolumes(ctx, &csi.ListVolumesRequest{}); return err },
		"probe":  func() error { _, err := c.Probe(ctx, &csi.ProbeRequest{}); return err },
		"unstage": func() error {
			_, err := c.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: handle, StagingTargetPath: "/nonexistent"})
			return err
		},
		"remove, past the first look": func() error {
			i, err := parseID(kindVolume, handle)
			if err != nil {
				return nil
			}
			return d.pool.remove(t.Context(), i)
		},
		"find, past the first look": func() error { _, err := d.pool.findVolume(handle); return err },
	}
	for name, call := range calls {
		err := call()
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "was its disk unmounted?") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := c.GetCapacity(ctx, &csi.GetCapacityRequest{}); err != nil || r.GetAvailableCapacity() != 0 {
		t.Errorf("capacity: %v, %v", r, err)
	}
}

// TestUpgradedHandles: an upgraded pool has volumes with and without its ID in their handles.
func TestUpgradedHandles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := Open(testSettings(dir), "test", quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	d.pool.marker.ID = "" // as an earlier driver made its handles
	d.pool.marker.Upgraded = true
	made, err := d.CreateVolume(t.Context(), asking("early", 4))
	if err != nil {
		t.Fatal(err)
	}
	handle := made.GetVolume().GetVolumeId()
	if want := newID(kindVolume, "early", "node1").String(); handle != want {
		t.Fatalf("the early handle is %s, not %s", handle, want)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// an earlier driver wrote the node's name; the administrator is told to create the marker
	for file, text := range map[string]string{fileNode: "node1", fileMarker: ""} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for range 2 { // the second start finds a marker that is filled in
		d, err = Open(testSettings(dir), "test", quiet(t))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.pool.marker.ID)
		if !poolPattern.MatchString(d.pool.marker.ID) || !d.pool.marker.Upgraded {
			t.Errorf("the marker is %+v", d.pool.marker)
		}
		again, err := d.CreateVolume(t.Context(), asking("early", 4))
		if err != nil || again.GetVolume().GetVolumeId() != handle {
			t.Errorf("asked for again: %v, %v", again, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if ids[0] != ids[1] {
		t.Errorf("the pool is %s and then %s", ids[0], ids[1])
	}
	d, c := open(t, testSettings(dir))
	all, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil || len(all.GetEntries()) != 1 || all.GetEntries()[0].GetVolume().GetVolumeId() != handle {
		t.Errorf("listed: %v, %v", all, err)
	}
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle}); err != nil {
		t.Error(err)
	}
	if left := names(t, filepath.Join(d.pool.Dir, dirVolumes)); left != "" {
		t.Errorf("deleted by its early handle, but %s is there", left)
	}
}
