package localdisk

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lowShare is the share of a pool, in percent, that must be free for volumes to be well that have not got all their blocks.
const lowShare = 2

// NodeGetVolumeStats returns how full a volume is and how it does.
func (d *Driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume path is given")
	}
	i, err := parseID(kindVolume, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	v, err := d.pool.find(i)
	if err != nil {
		return nil, err
	}
	there, err := d.pool.isAt(v, r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, status.Errorf(codes.NotFound, "volume %s is not at %s", v.ID, r.GetVolumePath())
	}
	response := &csi.NodeGetVolumeStatsResponse{VolumeCondition: d.condition(v)}
	if v.Mode == modeBlock {
		response.Usage = []*csi.VolumeUsage{{
			Unit: csi.VolumeUsage_BYTES, Total: v.size, Used: min(v.allocated, v.size), Available: max(0, v.size-v.allocated),
		}}
		return response, nil
	}
	response.Usage, err = filesystemUsage(r.GetVolumePath())
	return response, err
}

// isAt reports whether a volume is mounted at a path.
func (p *pool) isAt(v *disk, path string) (bool, error) {
	dev, err := p.attached(v.id)
	if err != nil || dev == nil {
		return false, err
	}
	defer dev.close()
	mounts, err := mountsOf(dev)
	if err != nil {
		return false, err
	}
	for _, m := range mounts {
		if m.point == path {
			return true, nil
		}
	}
	return false, nil
}

func filesystemUsage(path string) ([]*csi.VolumeUsage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return nil, fmt.Errorf("measure %s: %w", path, err)
	}
	return []*csi.VolumeUsage{
		{
			Unit: csi.VolumeUsage_BYTES, Total: int64(st.Blocks) * st.Bsize, Available: int64(st.Bavail) * st.Bsize,
			Used: int64(st.Blocks-st.Bfree) * st.Bsize,
		},
		{Unit: csi.VolumeUsage_INODES, Total: int64(st.Files), Available: int64(st.Ffree), Used: int64(st.Files - st.Ffree)},
	}, nil
}

// condition returns the condition of a volume, apart from its pool.
func (d *Driver) condition(v *disk) *csi.VolumeCondition {
	r, err := d.pool.measure()
	if err != nil {
		return &csi.VolumeCondition{Abnormal: true, Message: err.Error()}
	}
	return d.conditionIn(r, v)
}

// conditionIn warns before writes to a thin volume fail because the pool has no blocks left.
func (d *Driver) conditionIn(r room, v *disk) *csi.VolumeCondition {
	missing := v.size - v.allocated
	if missing > r.Free && r.Free < r.Capacity/100*lowShare {
		return &csi.VolumeCondition{Abnormal: true, Message: fmt.Sprintf(
			"the pool of node %s has %s left and the volume may still ask for %s: delete snapshots or volumes there, or enlarge the pool",
			d.pool.Node, size(r.Free), size(missing))}
	}
	return &csi.VolumeCondition{Message: "the volume is well"}
}
