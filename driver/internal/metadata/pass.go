package metadata

import (
	"errors"
	"io"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	wire "github.com/berth-vm/berth/internal/snapshotmetadata"
)

// pass sends an answer on, message by message, and ends as it ended.
func pass(out wire.Stream, next receive, err error) error {
	for err == nil {
		var m *wire.Response
		if m, err = next(); err == nil {
			err = out.Send(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func received(stream grpc.ServerStreamingClient[wire.Response], err error) (receive, error) {
	if err != nil {
		return nil, err
	}
	return stream.Recv, nil
}

// told is the part that the driver's answers to both calls have in common.
type told interface {
	GetBlockMetadataType() csi.BlockMetadataType
	GetVolumeCapacityBytes() int64
	GetBlockMetadata() []*csi.BlockMetadata
}

// converted makes messages of the service of a driver's.
func converted[M told](stream interface{ Recv() (M, error) }) receive {
	return func() (*wire.Response, error) {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		r := &wire.Response{BlockMetadataType: int32(m.GetBlockMetadataType()), VolumeCapacityBytes: m.GetVolumeCapacityBytes()}
		for _, b := range m.GetBlockMetadata() {
			r.BlockMetadata = append(r.BlockMetadata, &wire.Block{ByteOffset: b.GetByteOffset(), SizeBytes: b.GetSizeBytes()})
		}
		return r, nil
	}
}
