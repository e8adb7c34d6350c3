// Package snapshotmetadata is the contract of the Kubernetes service that tells which parts of a VolumeSnapshot have data, and in which
// parts two of them differ (KEP-3314): the gRPC service snapshotmetadata.SnapshotMetadata, as upstream's external-snapshot-metadata
// serves it, and a client for it. It does not know which driver answers, or what is done with the ranges.
package snapshotmetadata

import (
	"fmt"

	"google.golang.org/grpc"
)

// The messages have upstream's fields and numbers. They are Go structs with the tags that the protobuf module reads, in place of
// generated code: a test holds their bytes.

// VariableLength is the block metadata type of ranges of any length.
const VariableLength = 2

// Block is a range.
type Block struct {
	ByteOffset int64 `protobuf:"varint,1,opt,name=byte_offset,json=byteOffset,proto3"`
	SizeBytes  int64 `protobuf:"varint,2,opt,name=size_bytes,json=sizeBytes,proto3"`
}

// AllocatedRequest asks which parts of a snapshot have data.
type AllocatedRequest struct {
	SecurityToken  string `protobuf:"bytes,1,opt,name=security_token,json=securityToken,proto3"`
	Namespace      string `protobuf:"bytes,2,opt,name=namespace,proto3"`
	SnapshotName   string `protobuf:"bytes,3,opt,name=snapshot_name,json=snapshotName,proto3"`
	StartingOffset int64  `protobuf:"varint,4,opt,name=starting_offset,json=startingOffset,proto3"`
	MaxResults     int32  `protobuf:"varint,5,opt,name=max_results,json=maxResults,proto3"`
}

// DeltaRequest asks in which parts a snapshot differs from the one with a CSI handle.
type DeltaRequest struct {
	SecurityToken      string `protobuf:"bytes,1,opt,name=security_token,json=securityToken,proto3"`
	Namespace          string `protobuf:"bytes,2,opt,name=namespace,proto3"`
	BaseSnapshotID     string `protobuf:"bytes,3,opt,name=base_snapshot_id,json=baseSnapshotId,proto3"`
	TargetSnapshotName string `protobuf:"bytes,4,opt,name=target_snapshot_name,json=targetSnapshotName,proto3"`
	StartingOffset     int64  `protobuf:"varint,5,opt,name=starting_offset,json=startingOffset,proto3"`
	MaxResults         int32  `protobuf:"varint,6,opt,name=max_results,json=maxResults,proto3"`
}

// Response is one message of either answer.
type Response struct {
	BlockMetadataType   int32    `protobuf:"varint,1,opt,name=block_metadata_type,json=blockMetadataType,proto3"`
	VolumeCapacityBytes int64    `protobuf:"varint,2,opt,name=volume_capacity_bytes,json=volumeCapacityBytes,proto3"`
	BlockMetadata       []*Block `protobuf:"bytes,3,rep,name=block_metadata,json=blockMetadata,proto3"`
}

// ProtoMessage marks a protobuf message.
func (*Block) ProtoMessage() {}

// Reset implements a protobuf message.
func (m *Block) Reset() { *m = Block{} }

// String implements a protobuf message.
func (m *Block) String() string { return fmt.Sprintf("%d+%d", m.ByteOffset, m.SizeBytes) }

// ProtoMessage marks a protobuf message.
func (*AllocatedRequest) ProtoMessage() {}

// Reset implements a protobuf message.
func (m *AllocatedRequest) Reset() { *m = AllocatedRequest{} }

// ProtoMessage marks a protobuf message.
func (*DeltaRequest) ProtoMessage() {}

// Reset implements a protobuf message.
func (m *DeltaRequest) Reset() { *m = DeltaRequest{} }

// ProtoMessage marks a protobuf message.
func (*Response) ProtoMessage() {}

// Reset implements a protobuf message.
func (m *Response) Reset() { *m = Response{} }

// String implements a protobuf message.
func (m *Response) String() string {
	return fmt.Sprintf("%d ranges of %d bytes", len(m.BlockMetadata), m.VolumeCapacityBytes)
}

// String leaves out the token.
// String implements a protobuf message.
func (m *AllocatedRequest) String() string {
	return fmt.Sprintf("allocated in %s/%s from %d", m.Namespace, m.SnapshotName, m.StartingOffset)
}

// String leaves out the token.
// String implements a protobuf message.
func (m *DeltaRequest) String() string {
	return fmt.Sprintf("changes in %s/%s since %s from %d", m.Namespace, m.TargetSnapshotName, m.BaseSnapshotID, m.StartingOffset)
}

// Stream is the stream that an answer is sent to.
type Stream = grpc.ServerStreamingServer[Response]

// Server answers both calls.
type Server interface {
	GetMetadataAllocated(r *AllocatedRequest, out Stream) error
	GetMetadataDelta(r *DeltaRequest, out Stream) error
}

const service = "snapshotmetadata.SnapshotMetadata"

// Register makes a gRPC server answer for s.
func Register(r grpc.ServiceRegistrar, s Server) { r.RegisterService(&description, s) }

var description = grpc.ServiceDesc{
	ServiceName: service, HandlerType: (*Server)(nil), Metadata: "schema.proto",
	Streams: []grpc.StreamDesc{
		{StreamName: "GetMetadataAllocated", ServerStreams: true, Handler: handler(Server.GetMetadataAllocated)},
		{StreamName: "GetMetadataDelta", ServerStreams: true, Handler: handler(Server.GetMetadataDelta)},
	},
}

func handler[R any](call func(Server, *R, Stream) error) grpc.StreamHandler {
	return func(s any, stream grpc.ServerStream) error {
		r := new(R)
		if err := stream.RecvMsg(r); err != nil {
			return err
		}
		return call(s.(Server), r, &grpc.GenericServerStream[R, Response]{ServerStream: stream})
	}
}
