package localdisk

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ListVolumes lists this node's volumes.
func (d *Driver) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	all, err := d.pool.list(kindVolume)
	if err != nil {
		return nil, err
	}
	shown, next, err := page(all, kindVolume, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	room, err := d.pool.measure()
	if err != nil {
		return nil, err
	}
	response := &csi.ListVolumesResponse{NextToken: next}
	for _, v := range shown {
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{
			Volume: d.volume(v, contentSource(v)),
			Status: &csi.ListVolumesResponse_VolumeStatus{VolumeCondition: d.conditionIn(room, v)},
		})
	}
	return response, nil
}

// ListSnapshots lists this node's snapshots, or those with an ID or of a volume.
func (d *Driver) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	all, err := d.pool.list(kindSnapshot)
	if err != nil {
		return nil, err
	}
	wanted := all[:0]
	for _, s := range all {
		if (r.GetSnapshotId() == "" || r.GetSnapshotId() == s.ID) && (r.GetSourceVolumeId() == "" || r.GetSourceVolumeId() == s.Source) {
			wanted = append(wanted, s)
		}
	}
	shown, next, err := page(wanted, kindSnapshot, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	response := &csi.ListSnapshotsResponse{NextToken: next}
	for _, s := range shown {
		response.Entries = append(response.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshot(s)})
	}
	return response, nil
}

// page cuts a part out of a list that is in the order of keys. A token is the ID of the last entry before it, so that it
// stays right when entries come and go.
func page(all []*disk, k kind, token string, most int32) (shown []*disk, next string, err error) {
	if most < 0 {
		return nil, "", status.Errorf(codes.InvalidArgument, "%d entries are asked for", most)
	}
	if token != "" {
		last, err := parseID(k, token)
		if err != nil {
			return nil, "", status.Errorf(codes.Aborted, "starting token %q was not given out by this driver; start again without", token)
		}
		for len(all) > 0 && all[0].id.key <= last.key {
			all = all[1:]
		}
	}
	if most > 0 && len(all) > int(most) {
		all = all[:most]
		next = all[most-1].ID
	}
	return all, next, nil
}

// contentSource returns where a volume's bytes came from.
func contentSource(v *disk) *csi.VolumeContentSource {
	switch {
	case v.Source == "":
		return nil
	case kindOf(v.Source) == kindSnapshot:
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: v.Source},
		}}
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.Source},
	}}
}
