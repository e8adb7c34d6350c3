package localdisk

import (
	"errors"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// rangesPerMessage is how many ranges a message has at most: some 20 KiB.
const rangesPerMessage = 1024

// GetMetadataAllocated streams the ranges of a snapshot that have data. What it leaves out reads as zeroes.
func (d *Driver) GetMetadataAllocated(r *csi.GetMetadataAllocatedRequest, stream csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	target, err := d.pool.openSnapshot(r.GetSnapshotId())
	if err != nil {
		return err
	}
	defer target.file.Close()
	out, err := newMessages(r.GetMaxResults(), func(list []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataAllocatedResponse{
			BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: target.size, BlockMetadata: list,
		})
	})
	if err != nil {
		return err
	}
	if err := target.has(r.GetStartingOffset()); err != nil {
		return err
	}
	if err := changes(stream.Context(), nil, target.image, r.GetStartingOffset(), out.add); err != nil {
		return err
	}
	return out.end()
}

// GetMetadataDelta streams the ranges in which a snapshot differs from another one of its volume. Either may be the older one.
// A base that is smaller, because the volume has grown since, counts as if zeroes followed it.
func (d *Driver) GetMetadataDelta(r *csi.GetMetadataDeltaRequest, stream csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	base, err := d.pool.openSnapshot(r.GetBaseSnapshotId())
	if err != nil {
		return err
	}
	defer base.file.Close()
	target, err := d.pool.openSnapshot(r.GetTargetSnapshotId())
	if err != nil {
		return err
	}
	defer target.file.Close()
	out, err := newMessages(r.GetMaxResults(), func(list []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataDeltaResponse{
			BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: target.size, BlockMetadata: list,
		})
	})
	if err != nil {
		return err
	}
	if nameOf(base.Source) != nameOf(target.Source) {
		return status.Errorf(codes.InvalidArgument, "snapshot %s is of volume %s, but %s is of volume %s", base.ID, base.Source, target.ID, target.Source)
	}
	if err := target.has(r.GetStartingOffset()); err != nil {
		return err
	}
	if !d.pool.reflink {
		return status.Errorf(codes.FailedPrecondition, "the pool's filesystem on node %s cannot share blocks (XFS can), "+
			"so that nothing tells what changed: read all of the snapshot", d.pool.Node)
	}
	if err := changes(stream.Context(), &base.image, target.image, r.GetStartingOffset(), out.add); err != nil {
		return err
	}
	return out.end()
}

// openedSnapshot is a snapshot whose image stays as it is until it is closed, also if the snapshot is removed meanwhile.
type openedSnapshot struct {
	record
	image
}

// openSnapshot opens what a caller's handle names; the caller closes its file.
func (p *pool) openSnapshot(handle string) (*openedSnapshot, error) {
	i, err := parseID(kindSnapshot, handle)
	if err != nil {
		return nil, err
	}
	if _, err := p.find(i); err != nil {
		return nil, err
	}
	s, err := openIn(p.dir(i))
	if errors.Is(err, fs.ErrNotExist) { // removed since
		return nil, status.Errorf(codes.NotFound, "snapshot %s does not exist on node %s", i, p.Node)
	}
	return s, err
}

// openIn opens the snapshot in a directory. Record and image are of the same snapshot, even if the directory is renamed or removed.
func openIn(path string) (*openedSnapshot, error) {
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	text, err := dir.Open(fileRecord)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	r, err := decodeRecord(text)
	if err != nil {
		return nil, err
	}
	file, err := dir.Open(fileImage)
	if err != nil {
		return nil, err
	}
	st, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &openedSnapshot{record: *r, image: image{file: file, size: st.Size()}}, nil
}

// has returns an error if an offset is not in the snapshot. The end of the snapshot is accepted: a caller may continue there, and
// gets nothing.
func (s *openedSnapshot) has(offset int64) error {
	if offset < 0 || offset > s.size {
		return status.Errorf(codes.OutOfRange, "starting offset %d is not within the %d bytes of snapshot %s", offset, s.size, s.ID)
	}
	return nil
}

// messages gathers ranges into messages. Ranges that touch become one.
type messages struct {
	most int
	send func([]*csi.BlockMetadata) error
	list []*csi.BlockMetadata
	sent bool
}

// newMessages sends messages of at most so many ranges; 0 leaves it to the driver.
func newMessages(most int32, send func([]*csi.BlockMetadata) error) (*messages, error) {
	if most < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "%d results are asked for in a message", most)
	}
	m := &messages{most: rangesPerMessage, send: send}
	if most > 0 {
		m.most = min(m.most, int(most))
	}
	return m, nil
}

func (m *messages) add(from, to int64) error {
	if n := len(m.list); n > 0 {
		if last := m.list[n-1]; last.ByteOffset+last.SizeBytes == from {
			last.SizeBytes += to - from
			return nil
		}
		if n == m.most {
			if err := m.flush(); err != nil {
				return err
			}
		}
	}
	m.list = append(m.list, &csi.BlockMetadata{ByteOffset: from, SizeBytes: to - from})
	return nil
}

func (m *messages) flush() error {
	err := m.send(m.list)
	m.list, m.sent = nil, true
	return err
}

// end sends what is left. A stream has at least one message, which tells the capacity.
func (m *messages) end() error {
	if m.sent && len(m.list) == 0 {
		return nil
	}
	return m.flush()
}
