//go:build host

package localdisk

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestUse: on every kind of pool, every kind of volume keeps what is written, is copied, grows while it is used, and goes.
func TestUse(t *testing.T) {
	for _, poolFS := range []string{"xfs", "ext4"} {
		for mode, ability := range abilities() {
			t.Run(poolFS+"/"+mode, func(t *testing.T) {
				_, c := open(t, testSettings(poolOn(t, poolFS, 4)))
				source := user{t, c, t.TempDir(), c.mustCreate(t, wanting("source", 400, ability)).GetVolumeId(), ability}
				var snap string
				source.use(func() {
					source.write("first")
					if poolFS == "xfs" {
						snap = takeSnapshot(t, c, source.handle)
						source.write("other")
					}
				})
				if poolFS == "ext4" {
					snap = takeSnapshot(t, c, source.handle)
					source.use(func() { source.write("other") })
				}
				for from, want := range map[*csi.VolumeContentSource]string{fromSnapshot(snap): "first", fromVolume(source.handle): "other"} {
					r := wanting("copy-"+want, 600, ability)
					r.VolumeContentSource = from
					copied := user{t, c, t.TempDir(), c.mustCreate(t, r).GetVolumeId(), ability}
					source.use(func() { // also beside what it is of: one XFS twice
						copied.use(func() {
							if got := copied.read(5); got != want {
								t.Errorf("the copy reads %q, not %q", got, want)
							}
							if seen := copied.sizeSeen(); seen < 500<<20 {
								t.Errorf("the larger copy shows %s", size(seen))
							}
						})
					})
					remove(t, c, copied.handle)
				}
				growInUse(t, source)
				remove(t, c, source.handle)
				if _, err := c.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snap}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func takeSnapshot(t *testing.T, c client, handle string) string {
	t.Helper()
	r, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: handle})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetSnapshot().GetSnapshotId()
}

func remove(t *testing.T, c client, handle string) {
	t.Helper()
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle}); err != nil {
		t.Error(err)
	}
}

// growInUse grows a volume while a process writes to it all the time.
func growInUse(t *testing.T, u user) {
	t.Helper()
	u.use(func() {
		before, wanted := u.sizeSeen(), u.growsInUse()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- writeOn(ctx, u.file()) }()
		for _, mib := range []int64{700, 900} {
			if err := u.expand(mib); err != nil {
				t.Error(err)
			}
			if err := u.expandNode(mib); status.Code(err) != wanted {
				t.Errorf("got %v, want %s", err, wanted)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("writing while growing: %v", err)
		}
		if after := u.sizeSeen(); wanted == codes.OK && after < before+450<<20 {
			t.Errorf("grown from %s to %s, not by 500 MiB", size(before), size(after))
		}
		if _, err := u.c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: u.handle}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a volume in use is deleted: %v", err)
		}
	})
	u.use(func() {
		if after := u.sizeSeen(); after < 800<<20 {
			t.Errorf("a volume of 900 MiB shows %s the next time", size(after))
		}
	})
}

func writeOn(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	data := make([]byte, 1<<20)
	for n := int64(0); ctx.Err() == nil; n++ {
		if _, err := f.WriteAt(data, (1+n%32)<<20); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// TestSnapshotInUseNeedsSharedBlocks: a copy that takes time would not be of one moment.
func TestSnapshotInUseNeedsSharedBlocks(t *testing.T) {
	_, c := open(t, testSettings(poolOn(t, "ext4", 2)))
	u := user{t, c, t.TempDir(), c.mustCreate(t, asking("v", 64)).GetVolumeId(), block()}
	u.use(func() {
		_, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: u.handle})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "stop what uses the volume") {
			t.Errorf("got %v", err)
		}
	})
}

// TestDevices: direct I/O, and preallocated blocks stay when a guest discards.
func TestDevices(t *testing.T) {
	d, c := open(t, testSettings(poolOn(t, "xfs", 2)))
	r := asking("v", 64)
	r.Parameters = map[string]string{paramPreallocate: "true"}
	u := user{t, c, t.TempDir(), c.mustCreate(t, r).GetVolumeId(), block()}
	u.use(func() {
		v, err := d.pool.findVolume(u.handle)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := d.pool.attached(v.id)
		if err != nil || dev == nil || !dev.direct {
			t.Fatalf("device %+v, %v", dev, err)
		}
		dev.close()
		command(t, "sh", "-c", "blkdiscard "+u.target()+" || true") // refused is as good
		if v, err = d.pool.findVolume(u.handle); err != nil || v.allocated < v.size {
			t.Errorf("after a discard %+v, %v", v, err)
		}
	})
}

// TestLargeClone: 100 GiB share their blocks, so the clone takes no room worth mentioning.
func TestLargeClone(t *testing.T) {
	d, c := open(t, testSettings(poolOn(t, "xfs", 20)))
	source := c.mustCreate(t, asking("source", 100<<10)).GetVolumeId()
	f, err := os.OpenFile(imageOf(t, d, source), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 1<<20)
	for n := range int64(512) { // scattered: many extents, as a used disk has
		data[0] = byte(n)
		if _, err := f.WriteAt(data, n*200<<20); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	before := free(t, d)
	r := asking("clone", 100<<10)
	r.VolumeContentSource = fromVolume(source)
	began := time.Now()
	clone := c.mustCreate(t, r).GetVolumeId()
	t.Logf("a clone of 100 GiB with %d extents took %v", 512, time.Since(began))
	if taken := before - free(t, d); taken > 16<<20 {
		t.Errorf("the clone took %s", size(taken))
	}
	same(t, imageOf(t, d, source), imageOf(t, d, clone), 500*200<<20)
}

func free(t *testing.T, d *Driver) int64 {
	t.Helper()
	unix.Sync()
	r, err := d.pool.measure()
	if err != nil {
		t.Fatal(err)
	}
	return r.Free
}

// same compares a MiB of two files.
func same(t *testing.T, one, other string, at int64) {
	t.Helper()
	var read [2]string
	for n, path := range []string{one, other} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data, err := io.ReadAll(io.NewSectionReader(f, at, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		read[n] = string(data)
	}
	if read[0] != read[1] || len(read[0]) != 1<<20 {
		t.Errorf("%s and %s differ at %d", one, other, at)
	}
}

// TestManyVolumes: 200 volumes at once, 40 of them attached.
func TestManyVolumes(t *testing.T) {
	_, c := open(t, testSettings(poolOn(t, "xfs", 4)))
	var handles []string
	for n := range 200 {
		handles = append(handles, c.mustCreate(t, asking(name(t, n), 64)).GetVolumeId())
	}
	r, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil || len(r.GetEntries()) != 200 {
		t.Fatalf("%d are listed, %v", len(r.GetEntries()), err)
	}
	dir := t.TempDir()
	var users []user
	for _, handle := range handles[:40] {
		users = append(users, user{t, c, dir, handle, block()})
	}
	for _, u := range users {
		if err := u.stage(); err != nil {
			t.Fatal(err)
		}
		if err := u.publish(); err != nil {
			t.Fatal(err)
		}
		u.write(u.handle)
	}
	for _, u := range users {
		if got := u.read(len(u.handle)); got != u.handle {
			t.Errorf("%s reads %q", u.handle, got)
		}
		if err := u.unpublish(); err != nil {
			t.Error(err)
		}
		if err := u.unstage(); err != nil {
			t.Error(err)
		}
	}
	for _, handle := range handles {
		remove(t, c, handle)
	}
}

// TestFullPool: a filesystem that is really full refuses with the numbers, and what was half made is gone.
func TestFullPool(t *testing.T) {
	s := testSettings(poolOn(t, "xfs", 1))
	d, c := open(t, s)
	r := asking("a", 500)
	r.Parameters = map[string]string{paramPreallocate: "true"}
	first := c.mustCreate(t, r).GetVolumeId()
	r.Name = "b"
	_, err := c.CreateVolume(t.Context(), r)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "do not fit into the pool of node node1") {
		t.Errorf("got %v", err)
	}
	thin := c.mustCreate(t, asking("thin", 2000)).GetVolumeId() // overcommitted
	u := user{t, c, t.TempDir(), thin, block()}
	u.use(func() {
		command(t, "sh", "-c", "dd if=/dev/zero of="+u.target()+" bs=1M oflag=direct 2>/dev/null || true")
		stats, err := c.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: thin, VolumePath: u.target()})
		if err != nil || !stats.GetVolumeCondition().GetAbnormal() || !strings.Contains(stats.GetVolumeCondition().GetMessage(), "may still ask for") {
			t.Errorf("condition of a thin volume in a full pool: %v, %v", stats, err)
		}
	})
	_, err = c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: first, CapacityRange: &csi.CapacityRange{RequiredBytes: 900 << 20},
	})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("expand in a full pool: %v", err)
	}
	remove(t, c, thin)
	remove(t, c, first)
	if left := free(t, d); left < 900<<20 {
		t.Errorf("%s are free after everything was deleted", size(left))
	}
}

// TestRestartFreesDevices: a device that is not mounted is detached when the driver starts, one in use stays.
func TestRestartFreesDevices(t *testing.T) {
	s := testSettings(poolOn(t, "xfs", 2))
	v := &victim{t: t, pool: s.Dir}
	v.start(0)
	dir := t.TempDir()
	var staged, published user
	for n, u := range []*user{&staged, &published} {
		*u = user{t, v.client, dir, v.mustCreate(t, asking(name(t, n), 64)).GetVolumeId(), block()}
		if err := u.stage(); err != nil {
			t.Fatal(err)
		}
	}
	if err := published.publish(); err != nil {
		t.Fatal(err)
	}
	published.write("kept")
	v.stop()
	v.start(0)
	defer v.stop()
	if left := leaksNow(t, s.Dir); len(left) != 1 {
		t.Errorf("attached after the start: %v", left)
	}
	if got := published.read(4); got != "kept" {
		t.Errorf("the volume in use reads %q", got)
	}
	staged.c, published.c = v.client, v.client
	if err := staged.publish(); err != nil { // the kubelet stages once, and goes on
		t.Error(err)
	}
	for _, u := range []user{staged, published} {
		if err := u.unpublish(); err != nil {
			t.Error(err)
		}
		if err := u.unstage(); err != nil {
			t.Error(err)
		}
	}
}
