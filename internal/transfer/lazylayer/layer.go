package lazylayer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// Layer is a layer that is read anywhere. It is safe for concurrent use.
type Layer struct {
	ctx   context.Context
	stop  context.CancelFunc
	blob  source.Blob
	info  source.Info
	kind  decode.Kind
	cache *Cache
	name  string // its digest without the algorithm
	dir   string
	users int // guarded by Cache.opening

	once    sync.Once
	running sync.WaitGroup
	over    chan struct{} // closed when the pass is

	mu        sync.Mutex
	sums      []pieceSum
	checked   map[int64]bool // pieces of the cache that were compared since we run
	flights   map[int64]*pendingFetch
	index     index
	states    *os.File      // what the decoder needs at each place of the index
	reached   int64         // decompressed bytes that the pass has gone over
	moved     chan struct{} // closed when reached, passErr, proven or condemned changes
	passErr   error         // why the pass does not go on
	proven    bool
	condemned error

	table    *tabled             // nil: there is none, or it is not used any more
	hasTable bool                // it has one that nothing is wrong with
	noTable  error               // why not
	ends     map[int64]edgePiece // what a table gave of pieces that are not all of the file

	waiting int           // reads that want something fetched
	idle    chan struct{} // closed when there are none
}

// pieceSum is the sum of a piece; the zero value means that the piece was not seen yet.
type pieceSum [sha256.Size]byte

// pendingFetch is a fetch of some pieces that several may wait for.
type pendingFetch struct {
	done   chan struct{}
	pieces map[int64][]byte
	err    error
}

// Open takes over blob, whose Info has the digest in its Member, and closes it in the end, too if it fails. A layer that is open already
// is shared. ctx is for opening only: the layer lives until it is closed as often as it was opened, or its cache is.
func (c *Cache) Open(ctx context.Context, blob source.Blob) (*Layer, error) {
	info := blob.Info()
	algorithm, name, _ := strings.Cut(info.Member.Digest, ":")
	var err error
	switch {
	case algorithm != "sha256" || !isLayer(name):
		err = task.Errorf(task.UnsupportedImage, "%s: the digest %s is none of SHA-256", info.Name, info.Member.Digest)
	case !info.Ranged || info.Size < 0:
		err = task.Errorf(task.SourceUnavailable, "%s: the registry serves no ranges, so that the layer can only be read in order", info.Name)
	}
	if err != nil {
		return nil, errors.Join(err, blob.Close())
	}
	head, err := bring(ctx, blob, 0, min(decode.HeadSize, info.Size))
	if err != nil {
		return nil, errors.Join(err, blob.Close())
	}
	l, shared, err := c.take(name, blob, decode.Detect(head))
	if err == nil && !shared {
		l.readTable(ctx)
	}
	return l, err
}

// take returns the layer of a name, which is made if it is not open.
func (c *Cache) take(name string, blob source.Blob, kind decode.Kind) (l *Layer, shared bool, err error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	if l := c.open[name]; l != nil {
		l.users++
		return l, true, blob.Close()
	}
	l = &Layer{blob: blob, info: blob.Info(), kind: kind, cache: c, name: name, users: 1,
		checked: map[int64]bool{}, flights: map[int64]*pendingFetch{}, moved: make(chan struct{}), idle: make(chan struct{}), over: make(chan struct{})}
	close(l.idle)
	l.ctx, l.stop = context.WithCancel(c.ctx)
	if err := l.begin(); err != nil {
		return nil, false, errors.Join(err, l.end())
	}
	c.open[name] = l
	return l, false, nil
}

// begin loads what was stored of the layer before.
func (l *Layer) begin() error {
	dir, err := l.cache.use(l.name)
	if err != nil {
		return err
	}
	l.dir = dir
	if l.recall() {
		return nil
	}
	l.cache.restart(l.name)
	if l.kind == decode.None {
		l.index.Plain = l.info.Size
		return nil
	}
	l.index = index{Kind: l.kind, Plain: -1}
	l.states, err = os.OpenFile(l.statesPath(), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("begin the index: %w", err)
	}
	return nil
}

// Begin starts the pass unless it has started. Its outcome is the layer's state.
func (l *Layer) Begin(check func() error) {
	l.once.Do(func() {
		l.running.Go(func() {
			defer close(l.over)
			_ = l.pass(check)
		})
	})
}

// Settled waits until the pass, which must have been started, has ended or the layer is closed.
func (l *Layer) Settled() {
	select {
	case <-l.over:
	case <-l.ctx.Done():
	}
}

// Close lets the layer go; the last one who does ends its reads and its pass.
func (l *Layer) Close() error {
	l.cache.opening.Lock()
	defer l.cache.opening.Unlock()
	if l.users--; l.users > 0 {
		return nil
	}
	delete(l.cache.open, l.name)
	return l.end()
}

func (l *Layer) end() error {
	l.stop()
	l.running.Wait()
	err := l.blob.Close()
	if l.states != nil {
		err = errors.Join(err, l.states.Close())
	}
	if l.dir != "" {
		l.cache.release(l.name, l.State().Proven)
	}
	return err
}

// Kind returns how the layer is compressed.
func (l *Layer) Kind() decode.Kind { return l.kind }

// State is the verification state of the layer.
type State struct {
	Proven    bool  // its digest is right, and so is all that was read and will be
	Condemned error // it is not; nothing is read any more
	Reached   int64 // decompressed bytes that the pass has gone over
	Away      error // what the pass waits for
	Table     bool  // it has a table of contents, by which is read what the pass has not come to
	NoTable   error // why it is not, though there is one
}

// State returns the verification state of the layer.
func (l *Layer) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return State{Proven: l.proven, Condemned: l.condemned, Reached: l.reached, Away: l.passErr, Table: l.hasTable, NoTable: l.noTable}
}

// ReadAt is io.ReaderAt of the decompressed layer.
func (l *Layer) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		at := off + int64(n)
		m, err := l.readPiece(p[n:], at/pieceSize, at%pieceSize)
		n += m
		if err != nil {
			return n, err
		}
		if m == 0 {
			return n, io.EOF
		}
	}
	return n, nil
}

// readPiece copies what piece i has from byte at on.
func (l *Layer) readPiece(p []byte, i, at int64) (int, error) {
	l.mu.Lock()
	err, checked := l.condemned, l.checked[i]
	l.mu.Unlock()
	if err != nil {
		return 0, err
	}
	p = p[:min(int64(len(p)), pieceSize-at)]
	if checked {
		if f := l.cache.file(l.name, i); f != nil {
			n, err := f.ReadAt(p, at)
			_ = f.Close() // opened for reading
			if err == nil || errors.Is(err, io.EOF) {
				return n, nil
			}
		}
	}
	if n, ok, err := l.readEnd(p, i, at); ok {
		return n, err
	}
	b, err := l.piece(i)
	if err != nil || at >= int64(len(b)) {
		return 0, err
	}
	return copy(p, b[at:]), nil
}

// piece returns a whole one, from the cache or fetched. One behind the end is empty.
func (l *Layer) piece(i int64) ([]byte, error) {
	for {
		if b := l.cache.load(l.name, i); b != nil {
			if l.recorded(i, b) {
				return b, nil
			}
			l.cache.forget(l.name, i)
		}
		l.mu.Lock()
		if err := l.condemned; err != nil {
			l.mu.Unlock()
			return nil, err
		}
		if l.index.Plain >= 0 && i*pieceSize >= l.index.Plain {
			l.mu.Unlock()
			return nil, nil
		}
		key, t := l.key(i), l.ahead(i)
		if t != nil && !t.whole(i) {
			t = nil
		}
		if t != nil {
			key = t.key(i)
		}
		f := l.fetched(key, i, t)
		if b, ok := f.pieces[i]; ok || f.err != nil {
			return b, f.err
		}
	}
}

// recorded reports whether the bytes of the cache are those that were seen before.
func (l *Layer) recorded(i int64, b []byte) bool {
	s := pieceSum(sha256.Sum256(b))
	l.mu.Lock()
	defer l.mu.Unlock()
	if i >= int64(len(l.sums)) || l.sums[i] != s {
		return false
	}
	l.checked[i] = true
	return true
}

// seen notes a piece's sum, or compares it, and keeps the piece.
func (l *Layer) seen(i int64, b []byte) error {
	s := pieceSum(sha256.Sum256(b))
	l.mu.Lock()
	for int64(len(l.sums)) <= i {
		l.sums = append(l.sums, pieceSum{})
	}
	was, proven := l.sums[i], l.proven
	if was == (pieceSum{}) {
		l.sums[i] = s
	}
	e := l.ends[i]
	delete(l.ends, i)
	l.mu.Unlock()
	if !e.in(b) {
		return l.condemn(task.Errorf(task.BadImage, "%s: the table of contents of layer %s names other bytes than it has in piece %d", l.info.Name, l.name, i))
	}
	if was != (pieceSum{}) && was != s {
		err := task.Errorf(task.SourceChanged, "%s: the registry sent other bytes than before of piece %d of layer %s", l.info.Name, i, l.name)
		if !proven { // and it is unknown which are right
			err = l.condemn(err)
		}
		return err
	}
	if err := l.cache.store(l.name, i, b); err == nil { // else it is fetched again
		l.mu.Lock()
		l.checked[i] = true
		l.mu.Unlock()
	}
	return nil
}

// condemn makes every read fail from now on.
func (l *Layer) condemn(why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.condemned == nil && !l.proven {
		l.condemned = fmt.Errorf("%w: %w", ErrCondemned, why)
		l.changed()
	}
	return l.condemned
}

// changed wakes those who wait for the pass.
func (l *Layer) changed() {
	close(l.moved)
	l.moved = make(chan struct{})
}

// Forget drops the layer's pieces from the cache, as others do that need the room.
func (l *Layer) Forget() {
	l.cache.mu.Lock()
	defer l.cache.mu.Unlock()
	l.cache.clear(l.name)
}
