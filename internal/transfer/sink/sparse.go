package sink

import "os"

// Sparse writes a new file and leaves out the pages that are zero. What is large goes around the page cache, and of the rest only so much
// is in it as a container's memory limit allows for. It is safe for concurrent use on disjoint ranges.
type Sparse struct{ w *writer }

// NewSparse takes over f, which is open at path for reading and writing and has nothing but holes where it will be written to.
func NewSparse(f *os.File, path string) *Sparse { return &Sparse{newWriter(f, path)} }

// WriteAt implements io.WriterAt.
func (s *Sparse) WriteAt(p []byte, off int64) (int, error) {
	if err := s.w.writePages(p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Sync makes all writes durable.
func (s *Sparse) Sync() error { return s.w.sync() }

// Close implements io.Closer.
func (s *Sparse) Close() error { return s.w.close() }
