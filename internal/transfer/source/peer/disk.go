package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	nethttp "net/http"
	"net/url"
	"strconv"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/fault"
	"github.com/berth-vm/berth/internal/transfer/source/http"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// span reads [off, off+n) of a disk, in frames if the peer knows them.
func (b *blob) span(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	resp, err := b.do(ctx, nethttp.MethodGet, b.base.JoinPath(peerproto.VolumePath), map[string]string{
		"Range": fmt.Sprintf("bytes=%d-%d", off, off+n-1), "If-Match": b.etag, "Accept": peerproto.FramesType,
	})
	if err != nil {
		return nil, err
	}
	body, err := b.body(resp, off, n)
	if err != nil {
		_ = resp.Body.Close() // the answer is of no use
		return nil, err
	}
	return body, nil
}

func (b *blob) body(resp *nethttp.Response, off, n int64) (io.ReadCloser, error) {
	if resp.StatusCode == nethttp.StatusOK || resp.StatusCode == nethttp.StatusRequestedRangeNotSatisfiable {
		return nil, task.Errorf(task.SourceUnavailable, "%s answered %d to bytes %d-%d", b.info.Name, resp.StatusCode, off, off+n-1)
	}
	if resp.StatusCode != nethttp.StatusPartialContent {
		return nil, fault.Status(b.info.Name, resp.StatusCode)
	}
	if etag := resp.Header.Get("ETag"); etag != "" && etag != b.etag {
		return nil, fault.Changed(b.info.Name, fmt.Sprintf("its version was %s and is now %s", b.etag, etag))
	}
	got, err := http.ParseContentRange(resp.Header.Get("Content-Range"))
	if err != nil || got != (http.ContentRange{First: off, Last: off + n - 1, Size: b.info.Size}) {
		return nil, task.Errorf(task.SourceUnavailable, "%s was asked for bytes %d-%d of %d and sent %q", b.info.Name, off, off+n-1,
			b.info.Size, resp.Header.Get("Content-Range"))
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != peerproto.FramesType {
		return fault.Body(b.info.Name, resp.Body, n), nil
	}
	frames, err := peerproto.NewReader(resp.Body, n)
	if err != nil {
		return nil, err
	}
	return &framed{name: b.info.Name, body: resp.Body, frames: frames}, nil
}

// framed is a range that came as frames.
type framed struct {
	name   string
	body   io.ReadCloser
	frames *peerproto.Reader
}

func (f *framed) Read(p []byte) (int, error) {
	n, err := f.frames.Read(p)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		_, _ = f.body.Read(make([]byte, 1)) // sees the end, after which the connection is used again
		return n, io.EOF
	case errors.Is(err, peerproto.ErrFrame):
		return n, task.Errorf(task.SourceUnavailable, "%s: %w", f.name, err)
	}
	return n, fault.Wire(f.name, err)
}

func (f *framed) Close() error {
	f.frames.Close()
	return f.body.Close()
}

// disk is a served disk; it knows where it is zero.
type disk struct {
	source.Blob
	blob   *blob
	policy retry.Policy
}

// extentsLimit bounds the document that says where data is. More than this is not worth knowing: reading the zeroes,
// which cost nothing on the wire, is faster than the list of them.
const extentsLimit = 8 << 20

// Data implements source.Sparse.
func (d *disk) Data(ctx context.Context, from, to int64) ([][2]int64, error) {
	if from < 0 || from > to || to > d.blob.info.Size {
		return nil, fmt.Errorf("look for data of %s in [%d, %d): it has %d bytes", d.blob.info.Name, from, to, d.blob.info.Size)
	}
	var found [][2]int64
	err := d.policy.Do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, d.policy.Idle)
		defer cancel()
		var err error
		found, err = d.blob.extents(ctx, from, to)
		return err
	})
	return found, err
}

func (b *blob) extents(ctx context.Context, from, to int64) ([][2]int64, error) {
	all := [][2]int64{{from, to - from}}
	if from == to {
		return nil, nil
	}
	u := b.base.JoinPath(peerproto.ExtentsPath)
	u.RawQuery = url.Values{"from": {strconv.FormatInt(from, 10)}, "to": {strconv.FormatInt(to, 10)}}.Encode()
	resp, err := b.do(ctx, nethttp.MethodGet, u, map[string]string{"If-Match": b.etag})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case nethttp.StatusOK:
	case nethttp.StatusNotFound:
		return all, nil
	default:
		return nil, fault.Status(b.info.Name, resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, extentsLimit+1))
	if err != nil {
		return nil, fault.Wire(b.info.Name, err)
	}
	if len(text) > extentsLimit {
		return all, nil
	}
	var found peerproto.Extents
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, task.Errorf(task.SourceUnavailable, "%s: where its data is: %w", b.info.Name, err)
	}
	if err := found.Check(from, to); err != nil {
		return nil, task.Errorf(task.SourceUnavailable, "%s: where its data is: %w", b.info.Name, err)
	}
	return found, nil
}
