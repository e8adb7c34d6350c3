package decode

import (
	"io"

	"github.com/therootcompany/xz"
)

func newXz(src io.Reader, o Options) (Reader, error) {
	in := newInput(src, o)
	z, err := xz.NewReader(in, uint32(min(o.Memory, 1<<31)))
	if err != nil {
		if in.err != nil {
			return nil, in.err
		}
		return nil, bad(Xz, in.off, "%w", err)
	}
	return newAhead(Xz, newLibrary(Xz, in, z, func() {}), o), nil
}
