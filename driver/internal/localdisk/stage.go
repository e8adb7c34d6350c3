package localdisk

import (
	"context"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeStageVolume attaches a volume; the filesystem of a Filesystem volume is mounted at the staging path and grows to the size
// of the volume, which may have grown while it was not in use.
func (d *Driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	point := r.GetStagingTargetPath()
	if point == "" {
		return nil, status.Error(codes.InvalidArgument, "no staging path is given")
	}
	w, err := readCapability(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	i, err := parseID(kindVolume, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	give, err := d.locks.take(ctx, i.name())
	if err != nil {
		return nil, err
	}
	defer give()
	v, err := d.pool.find(i)
	if err != nil {
		return nil, err
	}
	if err := w.fits(&v.record); err != nil {
		return nil, err
	}
	dev, err := d.pool.attach(v)
	if err != nil {
		return nil, err
	}
	defer dev.close()
	if v.Mode == modeFilesystem {
		if err := d.pool.mount(ctx, v, dev, point, r.GetVolumeCapability().GetMount().GetMountFlags()); err != nil {
			return nil, err
		}
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// mount mounts a volume's filesystem and lets it fill its device. A volume that is not preallocated gives back the
// blocks of what is deleted on it.
func (p *pool) mount(ctx context.Context, v *disk, dev *loop, point string, options []string) error {
	there, err := mountAt(point)
	if err != nil {
		return err
	}
	if there != nil && there.device != dev.number() {
		return status.Errorf(codes.FailedPrecondition, "something else is mounted at %s", point)
	}
	kind := filesystems[v.FSType]
	if there == nil {
		if kind.growUnmounted != nil {
			if err := p.growIdle(ctx, v, dev); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(point, 0o750); err != nil {
			return err
		}
		options = append(append([]string{}, kind.mountOptions...), options...)
		if !v.Preallocated {
			options = append(options, "discard")
		}
		if err := mountDevice(dev.path(), point, v.FSType, options); err != nil {
			return err
		}
		p.reached("stage: mounted")
	}
	if kind.growUnmounted != nil {
		return nil
	}
	return p.growMounted(ctx, v, dev)
}

// growIdle grows a filesystem that is not mounted.
func (p *pool) growIdle(ctx context.Context, v *disk, dev *loop) error {
	mounts, err := mountsOf(dev)
	if err != nil || len(mounts) > 0 {
		return err
	}
	return filesystems[v.FSType].growUnmounted(ctx, dev.path())
}

// NodeUnstageVolume unmounts and detaches a volume. It succeeds if the volume does not exist.
func (d *Driver) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id is given")
	}
	if r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no staging path is given")
	}
	give, err := d.locks.take(ctx, nameOf(r.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	defer give()
	if err := unmount(r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	d.pool.reached("unstage: unmounted")
	i, err := parseID(kindVolume, r.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return &csi.NodeUnstageVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := d.pool.release(i); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}
