package localdisk

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ControllerExpandVolume makes a volume's image larger; the node part does the rest where it is used. One resizer serves
// the whole cluster and asks the driver beside it, so a volume of another node is left to that node's part entirely: it
// grows the image as well.
func (d *Driver) ControllerExpandVolume(ctx context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if r.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "no size is given")
	}
	i, err := parseID(kindVolume, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	bytes, err := chooseSize(r.GetCapacityRange(), sizing{})
	if err != nil {
		return nil, err
	}
	if i.node != d.pool.Node {
		return &csi.ControllerExpandVolumeResponse{CapacityBytes: bytes, NodeExpansionRequired: true}, nil
	}
	give, err := d.locks.take(ctx, i.name())
	if err != nil {
		return nil, err
	}
	defer give()
	v, err := d.growTo(i, r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.size, NodeExpansionRequired: true}, nil
}

// NodeExpandVolume makes the image, the device and the filesystem of a volume larger while it is used. Each is made to fill
// the one below it, so that a call that was interrupted is finished by the next.
func (d *Driver) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume path is given")
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
	v, err := d.growTo(i, r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	dev, err := d.pool.attached(i)
	if err != nil {
		return nil, err
	}
	if dev == nil { // not used right now: staging it makes device and filesystem as large as the image
		return &csi.NodeExpandVolumeResponse{CapacityBytes: v.size}, nil
	}
	defer dev.close()
	if err := d.pool.fit(dev, v); err != nil {
		return nil, err
	}
	d.pool.reached("expand: device")
	if v.Mode == modeFilesystem {
		if err := d.pool.growMounted(ctx, v, dev); err != nil {
			return nil, err
		}
		d.pool.reached("expand: filesystem")
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.size}, nil
}

// growTo makes an image at least as large as requested; nil requests no size.
func (d *Driver) growTo(i id, asked *csi.CapacityRange) (*disk, error) {
	v, err := d.pool.find(i)
	if err != nil || asked == nil {
		return v, err
	}
	bytes, err := chooseSize(asked, sizing{floor: v.size, otherwise: v.size})
	if err != nil {
		return nil, err
	}
	return v, d.pool.grow(v, bytes)
}

// growMounted grows the filesystem of a device wherever it is mounted writable first.
func (p *pool) growMounted(ctx context.Context, v *disk, dev *loop) error {
	mounts, err := mountsOf(dev)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.device == dev.number() && !m.readonly {
			return filesystems[v.FSType].growMounted(ctx, dev.path(), m.point)
		}
	}
	return nil
}
