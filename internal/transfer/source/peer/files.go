package peer

import (
	"context"
	"encoding/json"
	"io"
	nethttp "net/http"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/transfer/source/fault"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// FileStream is the files of a volume but for its disk, as package filetree writes them.
type FileStream struct {
	io.ReadCloser
	resp *nethttp.Response
	blob *blob
}

// Files asks for the files that the peer serves. The caller closes the stream. What breaks off is not continued.
func Files(ctx context.Context, t task.Peer) (*FileStream, error) {
	b, err := dial(t)
	if err != nil {
		return nil, err
	}
	s := &FileStream{blob: b}
	err = retry.Default.Do(ctx, func(ctx context.Context) error {
		resp, err := b.do(ctx, nethttp.MethodGet, b.base.JoinPath(peerproto.FilesPath), nil)
		if err != nil {
			return err
		}
		if resp.StatusCode != nethttp.StatusOK {
			_ = resp.Body.Close() // the answer is of no use
			return fault.Status(b.info.Name, resp.StatusCode)
		}
		s.resp, s.ReadCloser = resp, fault.Body(b.info.Name, resp.Body, -1)
		return nil
	})
	if err != nil {
		b.client.CloseIdleConnections()
		return nil, err
	}
	return s, nil
}

// rest bounds what is read behind a stream to come to its trailer.
const rest = 1 << 20

// Trouble returns why not all files were sent, as the peer reports after the stream; empty if all were.
func (s *FileStream) Trouble() peerproto.Trouble {
	_, _ = io.CopyN(io.Discard, s.resp.Body, rest) // without its end there is no trailer
	var t peerproto.Trouble
	if json.Unmarshal([]byte(s.resp.Trailer.Get(peerproto.TroubleTrailer)), &t) != nil {
		return peerproto.Trouble{}
	}
	return t
}

// Close closes the stream.
func (s *FileStream) Close() error {
	err := s.ReadCloser.Close()
	s.blob.client.CloseIdleConnections()
	return err
}
