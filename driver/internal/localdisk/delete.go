package localdisk

import (
	"context"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// DeleteVolume removes a volume that is not in use. Its snapshots and clones have blocks of their own.
func (d *Driver) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := d.delete(ctx, kindVolume, r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// DeleteSnapshot removes a snapshot. Volumes made from it have blocks of their own.
func (d *Driver) DeleteSnapshot(ctx context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := d.delete(ctx, kindSnapshot, r.GetSnapshotId()); err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// delete succeeds for a volume that does not exist, but not for one on another node, which would remain there without a record. A
// handle of another driver counts as missing; one that begins like ours but cannot be parsed is from a newer driver.
func (d *Driver) delete(ctx context.Context, k kind, handle string) error {
	i, err := parseID(k, handle)
	if status.Code(err) == codes.NotFound && !strings.HasPrefix(handle, string(k)+"-") {
		return nil
	}
	if err != nil {
		return err
	}
	if !d.pool.holds(i) {
		return status.Errorf(codes.FailedPrecondition, "%s %s is %s: it can only be deleted there. If that disk is lost, "+
			"delete the object that names it from the cluster by removing its finalizers", k.noun(), i, d.pool.elsewhere(i))
	}
	give, err := d.locks.take(ctx, i.name())
	if err != nil {
		return err
	}
	defer give()
	return d.pool.remove(ctx, i)
}
