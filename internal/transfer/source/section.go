package source

import (
	"context"
	"fmt"
	"io"
)

// Section is n bytes of a ranged blob from off, under a name of its own. Closing it closes b.
func Section(b Blob, off, n int64, name string) (Blob, error) {
	info := b.Info()
	if !info.Ranged || off < 0 || n < 0 || off > info.Size-n {
		return nil, fmt.Errorf("%s: %d bytes from %d are not within the %d of %s", name, n, off, info.Size, info.Name)
	}
	s := Info{Name: name, Size: n, Ranged: true}
	if info.Version != "" {
		s.Version = fmt.Sprintf("%s@%d+%d", info.Version, off, n)
	}
	return &section{Blob: b, off: off, info: s}, nil
}

type section struct {
	Blob
	off  int64
	info Info
}

func (s *section) Info() Info { return s.info }

func (s *section) Open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	n, err := s.info.Span(off, n)
	if err != nil {
		return nil, err
	}
	return s.Blob.Open(ctx, s.off+off, n)
}
