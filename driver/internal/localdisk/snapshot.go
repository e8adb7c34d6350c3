package localdisk

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// CreateSnapshot keeps the bytes of a volume as they are. What programs have written but not synced may be missing, as
// after a power cut.
func (d *Driver) CreateSnapshot(ctx context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := checkName(kindSnapshot, r.GetName()); err != nil {
		return nil, err
	}
	source, err := parseID(kindVolume, r.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	i := d.pool.newID(kindSnapshot, r.GetName())
	made, err := d.once(ctx, i, func(ctx context.Context) (*disk, error) {
		there, err := d.pool.find(i)
		if err == nil {
			if there.Source != source.String() {
				return nil, status.Errorf(codes.AlreadyExists, "snapshot %q exists, but it is of volume %s", r.GetName(), there.Source)
			}
			return there, nil
		}
		if status.Code(err) != codes.NotFound {
			return nil, err
		}
		return d.createSnapshot(ctx, i, r.GetName(), source)
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: snapshot(made)}, nil
}

func (d *Driver) createSnapshot(ctx context.Context, i id, name string, source id) (*disk, error) {
	from, give, err := d.holdSource(ctx, source)
	if err != nil {
		return nil, err
	}
	defer give()
	release, err := d.pool.reserve(i.String(), from.allocated, false)
	if err != nil {
		return nil, err
	}
	defer release()
	return d.pool.make(ctx, &record{
		Version: recordVersion, ID: i.String(), Name: name, Created: time.Now().UTC(),
		Mode: from.Mode, FSType: from.FSType, Source: from.ID,
	}, from.size, from)
}

// snapshot returns a snapshot as callers see it. It can be used as soon as it is there.
func snapshot(s *disk) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.Source, SizeBytes: s.size, CreationTime: timestamppb.New(s.Created), ReadyToUse: true,
	}
}
