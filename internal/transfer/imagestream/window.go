package imagestream

import (
	"bytes"
	"errors"
	"io"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode"
)

// window is the part [from, to) of a decoded stream that is the image: all of it as a rule, one file of a tar archive in
// a container layer.
type window struct {
	dec  decode.Reader
	pos  int64  // of what dec brings next
	from int64  // where the image begins, or goes on
	to   int64  // where it ends; negative is the end of the stream
	rest []byte // what dec brought from to on
}

// Next lends the bytes of the image that come next, as decode.Reader.Next does.
func (w *window) Next() ([]byte, error) {
	for w.to < 0 || w.pos < w.to {
		p, err := w.dec.Next()
		if errors.Is(err, io.EOF) && w.to >= 0 {
			return nil, task.Errorf(task.BadImage, "the archive the disk is in ends at byte %d, the disk only at %d", w.pos, w.to)
		}
		if err != nil {
			return nil, err
		}
		at := w.pos
		w.pos += int64(len(p))
		if w.to >= 0 && w.pos > w.to {
			w.rest = p[w.to-at:]
			p = p[:w.to-at]
		}
		if skip := w.from - at; skip > 0 {
			p = p[min(skip, int64(len(p))):]
		}
		if len(p) > 0 {
			return p, nil
		}
	}
	return nil, io.EOF
}

// Read implements io.Reader, for images that are compressed once more inside their archive.
type windowReader struct {
	*window
	p []byte
}

func (r *windowReader) Read(p []byte) (int, error) {
	if len(r.p) == 0 {
		var err error
		if r.p, err = r.Next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.p)
	r.p = r.p[n:]
	return n, nil
}

// behind returns what follows the image in the stream.
func (w *window) behind() io.Reader { return io.MultiReader(bytes.NewReader(w.rest), w.dec) }
