package localdisk

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// scribble writes into a volume's image.
func scribble(t *testing.T, d *Driver, handle, text string, at int64) {
	t.Helper()
	f, err := os.OpenFile(imageOf(t, d, handle), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), at); err != nil {
		t.Fatal(err)
	}
}

func readAt(t *testing.T, path string, length int, at int64) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, length)
	if _, err := f.ReadAt(data, at); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimRight(data, "\x00"))
}

func imageOf(t *testing.T, d *Driver, handle string) string {
	t.Helper()
	i, err := parseID(kindOf(handle), handle)
	if err != nil {
		t.Fatal(err)
	}
	return d.pool.image(i)
}

// TestCopies: snapshots keep what was, restored and cloned volumes begin with it and go their own way.
func TestCopies(t *testing.T) {
	t.Parallel()
	d, c := open(t, testSettings(t.TempDir()))
	ctx := t.Context()
	source := c.mustCreate(t, asking("source", 64)).GetVolumeId()
	scribble(t, d, source, "first", 0)
	scribble(t, d, source, "last", 63<<20)
	snap, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: source})
	if err != nil {
		t.Fatal(err)
	}
	scribble(t, d, source, "other", 0)

	r := asking("clone", 64)
	r.VolumeContentSource = fromVolume(source)
	clone := c.mustCreate(t, r)
	r = asking("restored", 100)
	r.VolumeContentSource = fromSnapshot(snap.GetSnapshot().GetSnapshotId())
	restored := c.mustCreate(t, r)
	scribble(t, d, clone.GetVolumeId(), "mine", 0)

	for _, handle := range []string{source, snap.GetSnapshot().GetSnapshotId()} { // copies outlive what they are of
		if kindOf(handle) == kindSnapshot {
			_, err = c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: handle})
		} else {
			if got := readAt(t, imageOf(t, d, source), 5, 0); got != "other" {
				t.Errorf("the source reads %q after its clone was written", got)
			}
			_, err = c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: handle})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := []string{
		readAt(t, imageOf(t, d, clone.GetVolumeId()), 5, 0), readAt(t, imageOf(t, d, clone.GetVolumeId()), 4, 63<<20),
		readAt(t, imageOf(t, d, restored.GetVolumeId()), 5, 0), readAt(t, imageOf(t, d, restored.GetVolumeId()), 4, 63<<20),
	}
	if diff := cmp.Diff([]string{"miner", "last", "first", "last"}, got); diff != "" {
		t.Errorf("the copies differ (-want +got):\n%s", diff)
	}
	if restored.GetCapacityBytes() != 100<<20 || restored.GetContentSource().GetSnapshot() == nil {
		t.Errorf("restored: %v", restored)
	}
	if st, err := os.Stat(imageOf(t, d, restored.GetVolumeId())); err != nil || st.Size() != 100<<20 {
		t.Errorf("the restored image: %v, %v", st, err)
	}
}

// TestCopiesAreSparse: a hole costs nothing, wherever it is.
func TestCopiesAreSparse(t *testing.T) {
	t.Parallel()
	d, c := open(t, testSettings(t.TempDir()))
	source := c.mustCreate(t, asking("source", 1<<10)).GetVolumeId()
	scribble(t, d, source, "x", 500<<20)
	r := asking("clone", 1<<10)
	r.VolumeContentSource = fromVolume(source)
	clone, err := d.pool.findVolume(c.mustCreate(t, r).GetVolumeId())
	if err != nil {
		t.Fatal(err)
	}
	if clone.allocated > 1<<20 {
		t.Errorf("the clone of a volume with one byte has %s", size(clone.allocated))
	}
}

// TestRepeated: every call may come twice, and one that asks for something else is told what there is.
func TestRepeated(t *testing.T) {
	t.Parallel()
	_, c := open(t, testSettings(t.TempDir()))
	ctx := t.Context()
	first := c.mustCreate(t, asking("one", 64))
	second := c.mustCreate(t, asking("one", 64))
	if first.GetVolumeId() != second.GetVolumeId() {
		t.Errorf("the second call made %s, the first %s", second.GetVolumeId(), first.GetVolumeId())
	}
	_, err := c.CreateVolume(ctx, asking("one", 65))
	if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "its size is 64 MiB, not 65 MiB or more") {
		t.Errorf("another size: %v", err)
	}
	preallocated := asking("one", 64)
	preallocated.Parameters = map[string]string{paramPreallocate: "true"}
	if _, err := c.CreateVolume(ctx, preallocated); status.Code(err) != codes.AlreadyExists {
		t.Errorf("another class: %v", err)
	}
	for range 2 {
		grown, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId: first.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 100 << 20},
		})
		if err != nil || grown.GetCapacityBytes() != 100<<20 || !grown.GetNodeExpansionRequired() {
			t.Errorf("grown: %v, %v", grown, err)
		}
	}
	for range 2 {
		if _, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: first.GetVolumeId()}); err != nil {
			t.Error(err)
		}
	}
}

// TestRoom: no more capacity is promised than the class and ratio allow, and it is free again after deletion.
func TestRoom(t *testing.T) {
	t.Parallel()
	s := testSettings(t.TempDir())
	s.Capacity, s.Overcommit = 100<<20, 2
	d, c := open(t, s)
	ctx := t.Context()
	left := func() int64 {
		r, err := c.GetCapacity(ctx, &csi.GetCapacityRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetAvailableCapacity() >> 20
	}
	first := c.mustCreate(t, asking("a", 150))
	if left() != 50 {
		t.Errorf("%d MiB are left, not 50", left())
	}
	_, err := c.CreateVolume(ctx, asking("b", 60))
	want := "60 MiB do not fit into the pool of node node1: 150 MiB of 200 MiB promised (overcommit 2)"
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "at most 50 MiB can be had") {
		t.Errorf("full: %v", err)
	}
	_, err = c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: first.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 201 << 20},
	})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("grow beyond: %v", err)
	}
	elsewhere, err := c.GetCapacity(ctx, &csi.GetCapacityRequest{AccessibleTopology: &csi.Topology{Segments: map[string]string{TopologyKey: "node2"}}})
	if err != nil || elsewhere.GetAvailableCapacity() != 0 {
		t.Errorf("elsewhere: %v, %v", elsewhere, err)
	}
	if _, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: first.GetVolumeId()}); err != nil {
		t.Fatal(err)
	}
	if left() != 200 {
		t.Errorf("%d MiB are left, not 200", left())
	}
	r := asking("full", 40)
	r.Parameters = map[string]string{paramPreallocate: "true"}
	v, err := d.pool.findVolume(c.mustCreate(t, r).GetVolumeId())
	if err != nil || v.allocated < v.size {
		t.Errorf("preallocated: %+v, %v", v, err)
	}
}

// TestLists: pages are complete, in order, and survive what happens between them.
func TestLists(t *testing.T) {
	t.Parallel()
	_, c := open(t, testSettings(t.TempDir()))
	ctx := t.Context()
	const many = 25
	ids := map[string]bool{}
	for n := range many {
		ids[c.mustCreate(t, asking(fmt.Sprint("v", n), 1)).GetVolumeId()] = true
	}
	token := ""
	for pages := 0; ; pages++ {
		r, err := c.ListVolumes(ctx, &csi.ListVolumesRequest{MaxEntries: 10, StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.GetEntries() {
			if !ids[e.GetVolume().GetVolumeId()] {
				t.Errorf("%s is listed twice or never was made", e.GetVolume().GetVolumeId())
			}
			delete(ids, e.GetVolume().GetVolumeId())
		}
		if token = r.GetNextToken(); token == "" {
			break
		}
		if _, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: token}); err != nil { // the token stays good
			t.Fatal(err)
		}
	}
	if len(ids) > 0 {
		t.Errorf("not listed: %v", ids)
	}
}

// TestPoolIsKept: a pool has one driver and one node.
func TestPoolIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, _ := open(t, testSettings(dir))
	if _, err := Open(testSettings(dir), "test", d.log); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second driver: %v", err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, fileNode), []byte("node7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(testSettings(other), "test", d.log); err == nil || !strings.Contains(err.Error(), "belongs to node node7") {
		t.Errorf("another node's pool: %v", err)
	}
}

// TestMountTable reads lines as the kernel writes them.
func TestMountTable(t *testing.T) {
	t.Parallel()
	got, err := parseMounts(strings.NewReader(
		"36 35 7:3 / /var/lib/my\\040pods rw,noatime master:1 - ext4 /dev/loop3 rw,errors=continue\n" +
			"37 35 0:5 /loop12 /pods/block ro,nosuid shared:2 shared:9 - devtmpfs udev rw\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []mount{
		{device: "7:3", root: "/", point: "/var/lib/my pods", fsType: "ext4"},
		{device: "0:5", root: "/loop12", point: "/pods/block", fsType: "devtmpfs", readonly: true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); diff != "" {
		t.Error(diff)
	}
	if !got[1].isNode(12) || got[1].isNode(2) {
		t.Error("a device's node is not told from another's")
	}
}

// TestOnePod: a volume for one pod has one target, and being asked for that again is fine whatever else the kubelet mounted.
func TestOnePod(t *testing.T) {
	t.Parallel()
	ability := block()
	ability.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	r := &csi.NodePublishVolumeRequest{VolumeId: "v", StagingTargetPath: "/staging", TargetPath: "/target", VolumeCapability: ability}
	for name, row := range map[string]struct {
		points []string
		done   bool
		code   codes.Code
	}{
		"first":  {[]string{"/staging"}, false, codes.OK},
		"again":  {[]string{"/staging", "/kubelet", "/target"}, true, codes.OK},
		"second": {[]string{"/staging", "/other"}, false, codes.FailedPrecondition},
	} {
		var mounts []mount
		for _, point := range row.points {
			mounts = append(mounts, mount{point: point})
		}
		if done, err := published(mounts, r); done != row.done || status.Code(err) != row.code {
			t.Errorf("%s: %t, %v", name, done, err)
		}
	}
}
