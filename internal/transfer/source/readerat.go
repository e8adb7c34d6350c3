package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// The page cache of a ReaderAt: 4 MiB. A qcow2 L2 table is one cluster, 64 KiB as a rule, and neighbours are wanted
// next; a page of four of them costs no more time than one on any real network.
const (
	pageSize  = 256 << 10
	pageCount = 16
)

// ReaderAt reads a ranged blob anywhere, through a small cache of pages: for headers and tables, not for data. It is
// safe for concurrent use; a page that several want is fetched once.
type ReaderAt struct {
	ctx  context.Context
	blob Blob
	info Info

	mu    sync.Mutex
	pages map[int64]*page
	clock int64
}

type page struct {
	ready chan struct{} // closed when buf and err are final
	buf   []byte
	err   error
	used  int64 // by the clock; guarded by ReaderAt.mu
}

// NewReaderAt reads b until ctx ends. It does not close b.
func NewReaderAt(ctx context.Context, b Blob) (*ReaderAt, error) {
	info := b.Info()
	if !info.Ranged || info.Size < 0 {
		return nil, fmt.Errorf("read %s anywhere: it has no ranges", info.Name)
	}
	return &ReaderAt{ctx: ctx, blob: b, info: info, pages: map[int64]*page{}}, nil
}

// Size returns the blob's.
func (r *ReaderAt) Size() int64 { return r.info.Size }

// ReadAt is io.ReaderAt. Reads of whole pages and more go past the cache.
func (r *ReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read %s at %d: negative offset", r.info.Name, off)
	}
	if off >= r.info.Size {
		return 0, io.EOF
	}
	var end error
	if left := r.info.Size - off; int64(len(p)) > left {
		p, end = p[:left], io.EOF
	}
	if len(p) >= pageSize {
		if n, err := r.direct(p, off); err != nil {
			return n, err
		}
		return len(p), end
	}
	for n := 0; n < len(p); {
		at := off + int64(n)
		pg, err := r.page(at / pageSize)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], pg[at%pageSize:])
	}
	return len(p), end
}

func (r *ReaderAt) direct(p []byte, off int64) (int, error) {
	rc, err := r.blob.Open(r.ctx, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer rc.Close()
	n, err := io.ReadFull(rc, p)
	if errors.Is(err, io.EOF) && n < len(p) {
		err = fmt.Errorf("read %s: %w", r.info.Name, io.ErrUnexpectedEOF) // the blob broke its contract
	}
	return n, err
}

// page returns page i, fetching it if it is not there. An error is not kept: the next reader tries again.
func (r *ReaderAt) page(i int64) ([]byte, error) {
	r.mu.Lock()
	pg, ok := r.pages[i]
	if !ok {
		r.evict()
		pg = &page{ready: make(chan struct{})}
		r.pages[i] = pg
	}
	r.clock++
	pg.used = r.clock
	r.mu.Unlock()
	if ok {
		<-pg.ready // the fetch ends with r.ctx at the latest
		return pg.buf, pg.err
	}
	from := i * pageSize
	buf := make([]byte, min(pageSize, r.info.Size-from))
	_, pg.err = r.direct(buf, from)
	pg.buf = buf
	if pg.err != nil {
		r.mu.Lock()
		if r.pages[i] == pg {
			delete(r.pages, i)
		}
		r.mu.Unlock()
	}
	close(pg.ready)
	return pg.buf, pg.err
}

// evict makes room for one page. A page that is waited for or being read stays alive in the hands of its readers.
func (r *ReaderAt) evict() {
	if len(r.pages) < pageCount {
		return
	}
	oldest, found := int64(-1), int64(0)
	for i, pg := range r.pages {
		if oldest < 0 || pg.used < found {
			oldest, found = i, pg.used
		}
	}
	delete(r.pages, oldest)
}
