package localdisk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodePublishVolume makes a staged volume appear at a pod's path: a directory, or a device.
func (d *Driver) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if r.GetTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no target path is given")
	}
	w, err := readCapability(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	i, err := parseID(kindVolume, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.FailedPrecondition, "no staging path is given: the volume must be staged first")
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
	if err := d.pool.publish(v, r); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (p *pool) publish(v *disk, r *csi.NodePublishVolumeRequest) error {
	dev, err := p.staged(v)
	if err != nil {
		return err
	}
	defer dev.close()
	mounts, err := mountsOf(dev)
	if err != nil {
		return err
	}
	if done, err := published(mounts, r); done || err != nil {
		return err
	}
	staged := v.Mode == modeBlock || slices.ContainsFunc(mounts, func(m mount) bool { return m.point == r.GetStagingTargetPath() })
	if !staged {
		return status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s", v.ID, r.GetStagingTargetPath())
	}
	from := r.GetStagingTargetPath()
	if v.Mode == modeBlock {
		from = dev.path()
	}
	if err := makeTarget(r.GetTargetPath(), v.Mode); err != nil {
		return err
	}
	p.reached("publish: target")
	if err := bind(from, r.GetTargetPath(), r.GetReadonly()); err != nil {
		return err
	}
	p.reached("publish: bound")
	return nil
}

// published reports whether a volume is at its target already, and refuses a second target of a volume that is for one pod. The
// target is looked for first: the kubelet has mounts of its own for a volume that is published.
func published(mounts []mount, r *csi.NodePublishVolumeRequest) (bool, error) {
	for _, m := range mounts {
		if m.point != r.GetTargetPath() {
			continue
		}
		if m.readonly != r.GetReadonly() {
			return false, status.Errorf(codes.AlreadyExists, "volume %s is published at %s already, read-only: %t", r.GetVolumeId(), m.point, m.readonly)
		}
		return true, nil
	}
	if r.GetVolumeCapability().GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		return false, nil
	}
	for _, m := range mounts {
		if m.point != r.GetStagingTargetPath() {
			return false, status.Errorf(codes.FailedPrecondition, "volume %s is for one pod and is published at %s already", r.GetVolumeId(), m.point)
		}
	}
	return false, nil
}

// staged returns the device of a staged volume. That of a Block volume is attached again if the driver freed it meanwhile.
func (p *pool) staged(v *disk) (*loop, error) {
	if v.Mode == modeBlock {
		return p.attach(v)
	}
	dev, err := p.attached(v.id)
	if err == nil && dev == nil {
		err = status.Errorf(codes.FailedPrecondition, "volume %s is not staged", v.ID)
	}
	return dev, err
}

// makeTarget makes what a volume is bound over: a directory, or a file for a device.
func makeTarget(path, mode string) error {
	if mode == modeFilesystem {
		return os.MkdirAll(path, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// NodeUnpublishVolume takes a volume from a pod's path and removes the path.
func (d *Driver) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume id is given")
	}
	if r.GetTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "no target path is given")
	}
	give, err := d.locks.take(ctx, nameOf(r.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	defer give()
	if err := d.pool.unpublish(r.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// unpublish takes away what is mounted at a path, and the path.
func (p *pool) unpublish(point string) error {
	if err := unmount(point); err != nil {
		return err
	}
	p.reached("unpublish: unmounted")
	if err := os.Remove(point); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
