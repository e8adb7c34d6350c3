package layercache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/berth-vm/berth/internal/transfer/source"
)

// patience is how long the cache may be silent; a busy cache sends a sign of life at shorter intervals.
const patience = 20 * time.Second

// ErrRefused is the cache's word that it does not have the layer and will not make it.
var ErrRefused = errors.New("the node's cache of layers refuses")

// Ask asks for the next layer of an image, the lowest first: all of them over one connection. blob is the layer as its registry has it. The
// file is the caller's.
func Ask(ctx context.Context, c *net.UnixConn, digest string, size int64, blob source.Blob) (Layer, *os.File, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := tell(c, asked{Version: Version, Digest: digest, Size: size, Ranged: blob.Info().Ranged}); err != nil {
		return Layer{}, nil, err
	}
	for {
		a, file, err := told(c)
		switch {
		case err != nil:
		case a.Refused != "":
			err = fmt.Errorf("%w: %s", ErrRefused, a.Refused)
		case a.Layer != nil && file != nil:
			return *a.Layer, file, nil
		case len(a.Pieces) > 0:
			err = sendPieces(ctx, c, blob, size, a.Pieces)
		case a.Send:
			err = sendPart(ctx, c, blob, 0, -1, size)
		case !a.Busy:
			err = errors.New("the node's cache of layers says nothing that is known here")
		}
		if err != nil {
			if file != nil {
				_ = file.Close()
			}
			return Layer{}, nil, err
		}
	}
}

func tell(c *net.UnixConn, message any) error {
	if err := c.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return say(c, message, nil)
}

func told(c *net.UnixConn) (answer, *os.File, error) {
	var a answer
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return a, nil, err
	}
	file, err := hear(c, &a, true)
	return a, file, err
}

func sendPieces(ctx context.Context, c *net.UnixConn, blob source.Blob, size int64, wanted []int64) error {
	if len(wanted) > proofs {
		return errors.New("the node's cache of layers asks for too much")
	}
	for _, n := range wanted {
		if n < 0 || n >= pieces(size) {
			return fmt.Errorf("the node's cache of layers asks for piece %d of %d", n, pieces(size))
		}
		if err := sendPart(ctx, c, blob, n*pieceSize, piece(size, n), piece(size, n)); err != nil {
			return err
		}
	}
	return nil
}

// sendPart sends a part of the layer in packets, which is opened as so many bytes; -1: to the end, which is all that some registries can be asked for.
func sendPart(ctx context.Context, c *net.UnixConn, blob source.Blob, off, opened, n int64) error {
	r, err := blob.Open(ctx, off, opened)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	buffer := make([]byte, packet)
	for n > 0 {
		part := buffer[:min(packet, n)]
		if _, err := io.ReadFull(r, part); err != nil {
			return err
		}
		if err := c.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := c.Write(part); err != nil {
			return err
		}
		n -= int64(len(part))
	}
	return nil
}
