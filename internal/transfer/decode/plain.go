package decode

import (
	"io"
)

// newPlain hands a stream through that is not compressed, read ahead like the others.
func newPlain(src io.Reader, o Options) Reader {
	in := newInput(src, o)
	return newAhead(None, newLibrary(None, in, in, func() {}), o)
}
