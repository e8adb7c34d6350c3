package localdisk

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CreateVolume makes a volume, empty or from a snapshot or volume of this node.
func (d *Driver) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := checkName(kindVolume, r.GetName()); err != nil {
		return nil, err
	}
	w, err := readCapabilities(r.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	preallocated, err := readParameters(r.GetParameters())
	if err != nil {
		return nil, err
	}
	if err := d.pool.readTopology(r.GetAccessibilityRequirements()); err != nil {
		return nil, err
	}
	if r.GetMutableParameters() != nil {
		return nil, status.Error(codes.InvalidArgument, "volumes have no attributes that could be changed")
	}
	source, err := sourceOf(r.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	i := d.pool.newID(kindVolume, r.GetName())
	made, err := d.once(ctx, i, func(ctx context.Context) (*disk, error) {
		rec := &record{
			Version: recordVersion, ID: i.String(), Name: r.GetName(), Created: time.Now().UTC(),
			Mode: w.mode, FSType: w.fsType, Preallocated: preallocated,
		}
		return d.createVolume(ctx, i, rec, source, r.GetCapacityRange())
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: d.volume(made, r.GetVolumeContentSource())}, nil
}

// createVolume has the volume's lock.
func (d *Driver) createVolume(ctx context.Context, i id, rec *record, source *id, asked *csi.CapacityRange) (*disk, error) {
	there, err := d.pool.find(i)
	if err == nil {
		return there, sameVolume(there, rec, source, asked)
	}
	if status.Code(err) != codes.NotFound {
		return nil, err
	}
	if source == nil {
		if rec.Mode == modeFilesystem && rec.FSType == "" {
			rec.FSType = d.pool.FSType
		}
		bytes, err := chooseSize(asked, sizing{floor: wish{rec.Mode, rec.FSType}.floor(), otherwise: sizeDefault})
		if err != nil {
			return nil, err
		}
		return d.makeReserved(ctx, rec, bytes, nil)
	}
	from, give, err := d.holdSource(ctx, *source)
	if err != nil {
		return nil, err
	}
	defer give()
	if err := (wish{rec.Mode, rec.FSType}).fits(&from.record); err != nil {
		return nil, err
	}
	rec.Source, rec.FSType = from.ID, from.FSType
	if asked.GetLimitBytes() > 0 && asked.GetLimitBytes() < from.size {
		return nil, status.Errorf(codes.OutOfRange, "%s has %s, more than the %s asked for", from.ID, size(from.size), size(asked.GetLimitBytes()))
	}
	// What the source was asked for is enough for its clone, although the source was made larger than that.
	if required := asked.GetRequiredBytes(); required > 0 && wholeUnits(required) < from.size {
		return nil, status.Errorf(codes.OutOfRange, "%s has %s, more than the %s asked for", from.ID, size(from.size), size(required))
	}
	bytes, err := chooseSize(asked, sizing{floor: from.size, otherwise: from.size})
	if err != nil {
		return nil, err
	}
	return d.makeReserved(ctx, rec, bytes, from)
}

func (d *Driver) makeReserved(ctx context.Context, rec *record, bytes int64, from *disk) (*disk, error) {
	release, err := d.pool.reserve(rec.ID, bytes, rec.Preallocated)
	if err != nil {
		return nil, err
	}
	defer release()
	return d.pool.make(ctx, rec, bytes, from)
}

// holdSource finds where bytes come from and keeps it from being removed or, while they are copied, used.
func (d *Driver) holdSource(ctx context.Context, source id) (*disk, func(), error) {
	if source.node != d.pool.Node {
		return nil, nil, status.Errorf(codes.ResourceExhausted,
			"%s %s is on node %s, and this is node %s: its data would have to be copied from there over the network",
			source.kind.noun(), source, source.node, d.pool.Node)
	}
	give, err := d.locks.take(ctx, source.name())
	if err != nil {
		return nil, nil, err
	}
	from, err := d.pool.find(source)
	if err != nil {
		give()
		return nil, nil, err
	}
	return from, give, nil
}

// sourceOf reads where a volume's bytes come from; nil means nowhere.
func sourceOf(s *csi.VolumeContentSource) (*id, error) {
	if s == nil {
		return nil, nil
	}
	var i id
	var err error
	switch {
	case s.GetSnapshot() != nil:
		i, err = parseID(kindSnapshot, s.GetSnapshot().GetSnapshotId())
	case s.GetVolume() != nil:
		i, err = parseID(kindVolume, s.GetVolume().GetVolumeId())
	default:
		err = status.Error(codes.InvalidArgument, "the volume's source is neither a snapshot nor a volume")
	}
	return &i, err
}

// sameVolume returns whether a volume that is there is the one that is asked for.
func sameVolume(there *disk, rec *record, source *id, asked *csi.CapacityRange) error {
	other := func(what, is, wanted any) error {
		return status.Errorf(codes.AlreadyExists, "volume %q exists, but its %v is %v, not %v", rec.Name, what, is, wanted)
	}
	from := ""
	if source != nil {
		from = source.String()
	}
	switch {
	case there.Mode != rec.Mode:
		return other("mode", there.Mode, rec.Mode)
	case rec.FSType != "" && there.FSType != rec.FSType:
		return other("filesystem", there.FSType, rec.FSType)
	case there.Preallocated != rec.Preallocated:
		return other("preallocation", there.Preallocated, rec.Preallocated)
	case there.Source != from:
		return other("source", there.Source, from)
	case there.size < asked.GetRequiredBytes():
		return other("size", size(there.size), size(asked.GetRequiredBytes())+" or more")
	case asked.GetLimitBytes() > 0 && there.size > asked.GetLimitBytes():
		return other("size", size(there.size), size(asked.GetLimitBytes())+" or less")
	}
	return nil
}

// once runs a creation under its lock, to its end even if the caller gives up: a copy may take longer than the timeout of one
// call, and a caller that retries must find it done, not started again.
func (d *Driver) once(ctx context.Context, i id, work func(context.Context) (*disk, error)) (*disk, error) {
	give, err := d.locks.take(ctx, i.name())
	if err != nil {
		return nil, err
	}
	type result struct {
		made *disk
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer give()
		made, err := work(context.WithoutCancel(ctx))
		done <- result{made, err}
	}()
	select {
	case r := <-done:
		return r.made, r.err
	case <-ctx.Done():
		return nil, status.Errorf(codes.Aborted, "%s is still being made; ask again", i)
	}
}

// volume returns a volume as callers see it.
func (d *Driver) volume(v *disk, source *csi.VolumeContentSource) *csi.Volume {
	return &csi.Volume{
		VolumeId: v.ID, CapacityBytes: v.size, ContentSource: source,
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{TopologyKey: d.pool.Node}}},
	}
}
