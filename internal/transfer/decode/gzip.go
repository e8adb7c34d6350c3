package decode

import (
	"io"

	"github.com/klauspost/compress/gzip"
)

func newGzip(src io.Reader, o Options) (Reader, error) {
	in := newInput(src, o)
	z, err := gzip.NewReader(in)
	if err != nil {
		if in.err != nil {
			return nil, in.err
		}
		return nil, bad(Gzip, in.off, "%w", err)
	}
	return newAhead(Gzip, newLibrary(Gzip, in, z, func() {}), o), nil
}
