//go:build host

package localdisk

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestCrashInUse ends the driver at every step of a volume's life in use, and continues.
func TestCrashInUse(t *testing.T) {
	for mode, ability := range abilities() {
		t.Run(mode, func(t *testing.T) {
			everyStep(t, func(t *testing.T) string { return poolOn(t, "xfs", 4) }, func(v *victim) {
				life(v, ability)
				if left := leaks(v.t, v.pool); len(left) > 0 {
					v.t.Errorf("left behind: %v", left)
				}
				v.empty()
			})
		})
	}
}

// life is one of everything.
func life(v *victim, ability *csi.VolumeCapability) {
	t, ctx, dir := v.t, v.t.Context(), v.t.TempDir()
	create := func(name string, from *csi.VolumeContentSource) user {
		u := user{t: t, dir: dir, ability: ability}
		v.do("create "+name, func() error {
			r := wanting(name, 310, ability)
			r.VolumeContentSource = from
			made, err := v.CreateVolume(ctx, r)
			u.handle = made.GetVolume().GetVolumeId()
			return err
		})
		return u
	}
	do := func(name string, u user, step func(user) error) {
		v.do(name, func() error {
			u.c = v.client
			return step(u)
		})
	}
	use := func(u user, work func()) {
		do("stage", u, user.stage)
		do("publish", u, user.publish)
		work()
		do("unpublish", u, user.unpublish)
		do("unstage", u, user.unstage)
	}
	source := create("source", nil)
	var snap string
	use(source, func() {
		source.write("berth")
		v.do("snapshot", func() error {
			made, err := v.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: source.handle})
			snap = made.GetSnapshot().GetSnapshotId()
			return err
		})
		do("expand node", source, func(u user) error {
			if err := u.expandNode(400); status.Code(err) != u.growsInUse() {
				return err
			}
			return nil
		})
		source.c = v.client
		if seen := source.sizeSeen(); seen < 320<<20 && source.growsInUse() == codes.OK {
			t.Errorf("after growing the volume shows %s", size(seen))
		}
	})
	restored := create("restored", fromSnapshot(snap))
	use(restored, func() {
		if got := restored.read(5); got != "berth" {
			t.Errorf("restored reads %q", got)
		}
	})
	for _, u := range []user{source, restored} {
		v.do("delete", func() error {
			_, err := v.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: u.handle})
			return err
		})
	}
	v.do("delete snapshot", func() error {
		_, err := v.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snap})
		return err
	})
}
