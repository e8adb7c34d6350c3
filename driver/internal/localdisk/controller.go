package localdisk

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var controllerCapabilities = []csi.ControllerServiceCapability_RPC_Type{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	csi.ControllerServiceCapability_RPC_GET_VOLUME,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
	csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.ControllerServiceCapability_RPC_VOLUME_CONDITION,
}

// ControllerGetCapabilities returns which calls are answered.
func (d *Driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range controllerCapabilities {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return response, nil
}

// ControllerGetVolume returns one volume and its condition.
func (d *Driver) ControllerGetVolume(_ context.Context, r *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	v, err := d.pool.findVolume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: d.volume(v, contentSource(v)),
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{VolumeCondition: d.condition(v)},
	}, nil
}

// ValidateVolumeCapabilities tells whether a volume can be used as asked.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (
	*csi.ValidateVolumeCapabilitiesResponse, error) {
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no volume capabilities are given")
	}
	v, err := d.pool.findVolume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	w, err := readCapabilities(r.GetVolumeCapabilities())
	if err == nil {
		err = w.fits(&v.record)
	}
	if err == nil {
		_, err = readParameters(r.GetParameters())
	}
	if err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: r.GetVolumeCapabilities(), VolumeContext: r.GetVolumeContext(), Parameters: r.GetParameters(),
	}}, nil
}

// GetCapacity returns how large the next volume of a class may be on this node.
func (d *Driver) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if !d.pool.isHere(r.GetAccessibleTopology()) {
		return &csi.GetCapacityResponse{}, nil
	}
	if err := d.pool.present(); err != nil { // with an error the scheduler would go by what was said before
		d.log.Warn("there is no room without a pool", "error", err)
		return &csi.GetCapacityResponse{}, nil
	}
	preallocated, err := readParameters(r.GetParameters())
	if err != nil {
		return nil, err
	}
	w := wish{mode: modeBlock}
	if len(r.GetVolumeCapabilities()) > 0 {
		if w, err = readCapabilities(r.GetVolumeCapabilities()); err != nil {
			return nil, err
		}
	}
	if w.mode == modeFilesystem && w.fsType == "" {
		w.fsType = d.pool.FSType
	}
	room, err := d.pool.measure()
	if err != nil {
		return nil, err
	}
	most := room.largest(preallocated) / sizeUnit * sizeUnit
	return &csi.GetCapacityResponse{
		AvailableCapacity: most,
		MaximumVolumeSize: wrapperspb.Int64(min(most, sizeMax)), MinimumVolumeSize: wrapperspb.Int64(w.floor()),
	}, nil
}
