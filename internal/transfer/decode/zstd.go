package decode

import (
	"io"

	"github.com/klauspost/compress/zstd"
)

func newZstd(src io.Reader, o Options) (Reader, error) {
	in := newInput(src, o)
	z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(uint64(o.Memory)), zstd.WithDecoderLowmem(true))
	if err != nil {
		if in.err != nil {
			return nil, in.err
		}
		return nil, bad(Zstd, in.off, "%w", err)
	}
	return newAhead(Zstd, newLibrary(Zstd, in, z, z.Close), o), nil
}
