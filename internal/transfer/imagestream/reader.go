// Package imagestream reads an image that comes in one piece, in order: fetched ahead, counted, hashed, decompressed and, if it is a
// file in an archive, cut out of it. It can begin where an earlier run stopped.
//
// It does not know disk formats, nor where the bytes of the image go.
package imagestream

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/berth-vm/berth/internal/transfer/checksum"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/progress"
	"github.com/berth-vm/berth/internal/transfer/resume"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// Options say how a stream is read.
type Options struct {
	Sum   *checksum.Sum // of the source's bytes; nil: none is asked for
	Meter *progress.Meter
	Raw   bool  // the bytes are the disk: they are not looked at, and never decompressed
	Every int64 // decoded bytes between two places to continue from
}

// Reader reads one stream. It is for one goroutine.
type Reader struct {
	blob  source.Blob
	opts  Options
	info  source.Info
	wrap  decode.Kind // the compression around the image
	ahead *source.Ahead
	feed  *feed
	dec   decode.Reader
	image *window       // the image in what dec brings
	inner decode.Reader // of an image that is compressed once more inside its archive, else nil

	states []decode.State // the last places from which decoding can begin again, oldest first
}

// Open begins to read and to decompress, where an earlier run left off if it left a note. The error is resume.ErrStartOver if the note
// cannot be used. The caller closes the reader.
func Open(ctx context.Context, blob source.Blob, old *resume.Note, o Options) (*Reader, error) {
	r := &Reader{blob: blob, opts: o, info: blob.Info()}
	if err := r.connect(ctx, old); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Reader) connect(ctx context.Context, old *resume.Note) error {
	var from int64
	var state *decode.State
	if old != nil {
		state, from = old.State, old.State.In
		if r.opts.Sum != nil {
			from = old.HashAt
			if err := r.opts.Sum.Restore(old.Hash); err != nil || from > old.State.In {
				return resume.ErrStartOver
			}
		}
	}
	var err error
	if r.ahead, err = source.NewAhead(ctx, r.blob, from, source.AheadOptions{}); err != nil {
		return err
	}
	if r.feed, err = newFeed(r.ahead, from, r.opts.Sum, r.opts.Meter); err != nil {
		return err
	}
	var src io.Reader = r.feed
	if state != nil {
		r.wrap = state.Kind
		_, err = io.CopyN(io.Discard, r.feed, state.In-from) // hashed, but decoded before
	} else {
		src, err = r.sniff()
	}
	if err != nil {
		return err
	}
	if r.dec, err = decode.NewReader(r.wrap, src, decode.Options{Resume: state, Every: r.opts.Every}); err != nil {
		return err
	}
	r.image = &window{dec: r.dec, from: r.base(), to: -1}
	if m := r.info.Member; m != nil {
		r.image.to = m.Offset + m.Size
	}
	if state != nil {
		r.image.pos = state.Out
	}
	return nil
}

// sniff looks at the first bytes to see how the stream is compressed. A disk that must not be interpreted is not.
func (r *Reader) sniff() (io.Reader, error) {
	head := make([]byte, decode.HeadSize)
	n, err := 0, error(nil)
	for n < len(head) && err == nil {
		var m int
		m, err = r.feed.Read(head[n:])
		n += m
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !r.opts.Raw {
		r.wrap = decode.Detect(head[:n])
	}
	return io.MultiReader(bytes.NewReader(head[:n]), r.feed), nil
}

// base returns where the image begins in the decoded stream.
func (r *Reader) base() int64 {
	if m := r.info.Member; m != nil {
		return m.Offset
	}
	return 0
}

// Close ends reading.
func (r *Reader) Close() {
	if r.inner != nil {
		_ = r.inner.Close()
	}
	if r.dec != nil {
		_ = r.dec.Close()
	}
	if r.ahead != nil {
		_ = r.ahead.Close()
	}
}

// First lends the first bytes of an image that is not continued. If the image is a file in an archive, it may be compressed there once
// more.
func (r *Reader) First() ([]byte, error) {
	p, err := r.Next()
	if err == nil && r.info.Member != nil {
		p, err = r.unwrap(p)
	}
	return p, err
}

// unwrap looks for compression around the image inside its archive. An image like that is not continued after a crash.
func (r *Reader) unwrap(p []byte) ([]byte, error) {
	r.wrap = decode.Detect(p)
	if r.wrap == decode.None {
		return p, nil
	}
	src := io.MultiReader(bytes.NewReader(p), &windowReader{window: r.image})
	var err error
	if r.inner, err = decode.NewReader(r.wrap, src, decode.Options{}); err != nil {
		return nil, err
	}
	return r.inner.Next()
}

// Next lends the image's next bytes, as decode.Reader.Next does.
func (r *Reader) Next() ([]byte, error) {
	if r.inner != nil {
		return r.inner.Next()
	}
	return r.image.Next()
}

// Compression returns what is around the image; known once its first bytes are.
func (r *Reader) Compression() decode.Kind { return r.wrap }

// SkipTo continues at a byte of the image, in a stream that was opened with a note. The error is resume.ErrStartOver if the stream is
// beyond it.
func (r *Reader) SkipTo(offset int64) error {
	r.image.from = r.base() + offset
	if r.image.from < r.image.pos {
		return resume.ErrStartOver
	}
	return nil
}

// Decoded returns the whole decompressed stream, for a caller that reads nothing else of it.
func (r *Reader) Decoded() io.Reader { return r.dec }

// Drain reads what follows the image: the rest of its archive, which must not hold another disk, and padding behind the compressed
// stream, which belongs to the checksum.
func (r *Reader) Drain() error {
	if r.inner != nil { // it may have stopped before its archive's member ends
		if _, err := io.Copy(io.Discard, &windowReader{window: r.image}); err != nil {
			return err
		}
	}
	if m := r.info.Member; m != nil && m.Rest != nil {
		if err := m.Rest(r.image.behind()); err != nil {
			return err
		}
	}
	return r.DrainSource()
}

// DrainSource reads what follows the compressed stream.
func (r *Reader) DrainSource() error {
	_, err := io.Copy(io.Discard, r.feed)
	return err
}

// Continuable reports whether Place may return anything. In an image that is compressed once more inside its archive there is no place
// to continue from: dec is read by inner's goroutine, and a place in it is none in inner.
func (r *Reader) Continuable() bool { return r.inner == nil }

// Place is where a later run can begin to read and to decode.
type Place struct {
	State  decode.State
	Hash   []byte // the state of the checksum
	HashAt int64  // how many bytes of the source are in Hash
}

// Observe takes down the place that the decoder is at. Places that are not needed for continuing at offset of the image, or behind it,
// are forgotten.
func (r *Reader) Observe(offset int64) {
	if st := r.dec.State(); st != nil && (len(r.states) == 0 || st.Out > r.states[len(r.states)-1].Out) {
		r.states = append(r.states, *st)
	}
	at := r.base() + offset
	for len(r.states) > 1 && r.states[1].Out <= at {
		r.states = r.states[1:]
	}
}

// Place returns the last observed place from which a run can continue at offset of the image; nil if there is none. Offsets only grow.
func (r *Reader) Place(offset int64) *Place {
	if len(r.states) == 0 || r.states[0].Out > r.base()+offset {
		return nil
	}
	st := r.states[0]
	mark := r.feed.before(st.In)
	return &Place{State: st, Hash: mark.state, HashAt: mark.at}
}
