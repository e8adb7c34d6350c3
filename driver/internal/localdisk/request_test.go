package localdisk

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestBadVolumes: the right code, and a line a person understands.
func TestBadVolumes(t *testing.T) {
	t.Parallel()
	s := testSettings(t.TempDir())
	s.Capacity, s.Overcommit = 1<<30, 1
	d, c := open(t, s)
	elsewhere := newID(kindVolume, "there", "node2").String()
	missing := d.pool.newID(kindVolume, "missing").String()
	source := c.mustCreate(t, asking("source", 64)).GetVolumeId()
	for name, row := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		code   codes.Code
		says   string
	}{
		"size 0":         {func(r *csi.CreateVolumeRequest) { r.CapacityRange = &csi.CapacityRange{} }, codes.InvalidArgument, "size 0"},
		"negative size":  {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = -1 }, codes.InvalidArgument, "negative"},
		"beyond pool":    {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 2 << 30 }, codes.ResourceExhausted, "2 GiB do not fit into the pool of node node1: 64 MiB of 1 GiB promised"},
		"beyond all":     {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 1 << 60 }, codes.OutOfRange, "at most 16 TiB"},
		"limit too low":  {func(r *csi.CreateVolumeRequest) { r.CapacityRange = &csi.CapacityRange{LimitBytes: 4096} }, codes.OutOfRange, "smallest possible is 1 MiB"},
		"limit reversed": {func(r *csi.CreateVolumeRequest) { r.CapacityRange.LimitBytes = 5 }, codes.InvalidArgument, "at least"},
		"filesystem": {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0] = mounted("ntfs") }, codes.InvalidArgument,
			`filesystem "ntfs" is not known; ext4 and xfs are`},
		"both modes": {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = append(r.VolumeCapabilities, mounted("")) }, codes.InvalidArgument, "not both"},
		"shared": {func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, codes.InvalidArgument, "is on one node"},
		"path":          {func(r *csi.CreateVolumeRequest) { r.Name = "../../etc/passwd" }, codes.InvalidArgument, "slash"},
		"control":       {func(r *csi.CreateVolumeRequest) { r.Name = "a\nb" }, codes.InvalidArgument, "control character"},
		"long":          {func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("x", 129) }, codes.InvalidArgument, "129 bytes"},
		"no name":       {func(r *csi.CreateVolumeRequest) { r.Name = "" }, codes.InvalidArgument, "name"},
		"no capability": {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }, codes.InvalidArgument, "capabilities"},
		"parameter": {func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"colour": "red"} }, codes.InvalidArgument,
			`parameter "colour" of the class is not known`},
		"preallocate": {func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"preallocate": "yes"} }, codes.InvalidArgument, "not true or false"},
		"elsewhere": {func(r *csi.CreateVolumeRequest) {
			r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{TopologyKey: "node2"}}}}
		}, codes.ResourceExhausted, "asked for on node2, this is node node1"},
		"source elsewhere": {func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = fromVolume(elsewhere) }, codes.ResourceExhausted, "is on node node2"},
		"source missing":   {func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = fromVolume(missing) }, codes.NotFound, "does not exist"},
		"source path":      {func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = fromSnapshot("../x") }, codes.InvalidArgument, "characters of a path"},
		"source larger": {func(r *csi.CreateVolumeRequest) {
			r.VolumeContentSource = fromVolume(source)
			r.CapacityRange.RequiredBytes = 1 << 20
		},
			codes.OutOfRange, "64 MiB, more than the 1 MiB"},
		"source of other mode": {func(r *csi.CreateVolumeRequest) {
			r.VolumeContentSource = fromVolume(source)
			r.VolumeCapabilities[0] = mounted("ext4")
		}, codes.InvalidArgument, "is a Block volume, not Filesystem"},
	} {
		t.Run(name, func(t *testing.T) {
			r := asking("bad", 64)
			row.change(r)
			_, err := c.CreateVolume(t.Context(), r)
			if status.Code(err) != row.code || !strings.Contains(status.Convert(err).Message(), row.says) {
				t.Errorf("got %v, want %s with %q", err, row.code, row.says)
			}
		})
	}
}

// TestCloneOfRoundedSize: a clone may ask for what its source was asked for, which the driver has made larger.
func TestCloneOfRoundedSize(t *testing.T) {
	t.Parallel()
	_, c := open(t, testSettings(t.TempDir()))
	odd := func(name string) *csi.CreateVolumeRequest {
		r := asking(name, 64)
		r.CapacityRange.RequiredBytes -= 1000
		return r
	}
	clone := odd("clone")
	clone.VolumeContentSource = fromVolume(c.mustCreate(t, odd("source")).GetVolumeId())
	if made := c.mustCreate(t, clone); made.GetCapacityBytes() != 64<<20 {
		t.Errorf("the clone has %d bytes, want 64 MiB", made.GetCapacityBytes())
	}
}

// TestBadCalls: as TestBadVolumes, for other calls.
func TestBadCalls(t *testing.T) {
	t.Parallel()
	d, c := open(t, testSettings(t.TempDir()))
	ctx := t.Context()
	elsewhere := newID(kindVolume, "there", "node2").String()
	missing := d.pool.newID(kindVolume, "missing").String()
	for name, row := range map[string]struct {
		call func() error
		code codes.Code
		says string
	}{
		"snapshot of nothing": {func() error {
			_, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: missing})
			return err
		}, codes.NotFound, "does not exist on node node1"},
		"snapshot elsewhere": {func() error {
			_, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: elsewhere})
			return err
		}, codes.ResourceExhausted, "on node node2"},
		"snapshot path": {func() error {
			_, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "a/b", SourceVolumeId: missing})
			return err
		}, codes.InvalidArgument, "slash"},
		"delete elsewhere": {func() error {
			_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: elsewhere})
			return err
		}, codes.FailedPrecondition, "only be deleted there"},
		"delete path": {func() error {
			_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "../volumes"})
			return err
		}, codes.InvalidArgument, "characters of a path"},
		"expand nothing": {func() error {
			_, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: missing, CapacityRange: &csi.CapacityRange{RequiredBytes: 1}})
			return err
		}, codes.NotFound, "does not exist"},
		"stage elsewhere": {func() error {
			_, err := c.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: elsewhere, StagingTargetPath: "/x", VolumeCapability: block()})
			return err
		}, codes.NotFound, "is on node node2"},
		"list from nowhere": {func() error {
			_, err := c.ListVolumes(ctx, &csi.ListVolumesRequest{StartingToken: "x"})
			return err
		}, codes.Aborted, "start again"},
	} {
		t.Run(name, func(t *testing.T) {
			err := row.call()
			if status.Code(err) != row.code || !strings.Contains(status.Convert(err).Message(), row.says) {
				t.Errorf("got %v, want %s with %q", err, row.code, row.says)
			}
		})
	}
}

// FuzzID: a handle that is accepted is exactly the one that is written, and its key is a safe file name.
func FuzzID(f *testing.F) {
	f.Add(newID(kindVolume, "a", "node1").String())
	f.Add((&pool{Settings: Settings{Node: "node1"}, marker: marker{ID: "0123456789abcdef"}}).newID(kindVolume, "a").String())
	f.Add("vol-../../x.node1")
	f.Fuzz(func(t *testing.T, s string) {
		i, err := parseID(kindVolume, s)
		if err != nil {
			return
		}
		if i.String() != s || len(i.key) != keyLength || badName(i.key) {
			t.Errorf("%q is read as %+v", s, i)
		}
	})
}

// FuzzSize: a size that is chosen is in the range that was asked for.
func FuzzSize(f *testing.F) {
	f.Add(int64(1), int64(0))
	f.Add(int64(0), int64(5<<20))
	f.Fuzz(func(t *testing.T, required, limit int64) {
		bytes, err := chooseSize(&csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}, sizing{floor: sizeUnit, otherwise: sizeDefault})
		if err != nil {
			return
		}
		if bytes < required || limit > 0 && bytes > limit || bytes%sizeUnit != 0 || bytes < sizeUnit {
			t.Errorf("%d was chosen for at least %d and at most %d", bytes, required, limit)
		}
	})
}
