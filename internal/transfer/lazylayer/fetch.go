package lazylayer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// fetched waits for the fetch with this key, or starts it: of piece i, by the table if there is one. l.mu must be held, and is
// released on return.
func (l *Layer) fetched(key, i int64, t *tabled) *pendingFetch {
	f := l.flights[key]
	own := f == nil
	if own {
		f = &pendingFetch{done: make(chan struct{})}
		l.flights[key] = f
		l.want(1)
	}
	l.mu.Unlock()
	if own {
		l.fly(f, key, i, t)
	} else {
		<-f.done // it ends with l.ctx at the latest
	}
	return f
}

// fly carries out a fetch.
func (l *Layer) fly(f *pendingFetch, key, i int64, t *tabled) {
	defer func() {
		l.mu.Lock()
		delete(l.flights, key)
		l.want(-1)
		l.mu.Unlock()
		close(f.done)
	}()
	if t != nil {
		if f.pieces, f.err = l.enterTable(t, i); !errors.Is(f.err, errTable) {
			return
		}
		l.dropTable(f.err)
	}
	if l.kind != decode.None {
		var waited bool
		l.busy(-1) // the pass is not to wait for who waits for it
		waited, f.err = l.await(i)
		if l.busy(1); waited || f.err != nil {
			return // the pass has just kept it
		}
	}
	var leave func()
	if leave, f.err = l.turn(); f.err != nil {
		return
	}
	defer leave()
	if l.kind == decode.None {
		b, err := bring(l.ctx, l.blob, i*pieceSize, min(pieceSize, l.info.Size-i*pieceSize))
		if err == nil {
			err = l.seen(i, b)
		}
		f.pieces, f.err = map[int64][]byte{i: b}, err
		return
	}
	f.pieces, f.err = l.enter(i)
}

// turn waits until a fetch may start.
func (l *Layer) turn() (leave func(), err error) {
	select {
	case l.cache.fetches <- struct{}{}:
		return func() { <-l.cache.fetches }, nil
	case <-l.ctx.Done():
		return nil, l.ctx.Err()
	}
}

func (l *Layer) busy(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.want(n)
}

// want counts reads that wait for a fetch.
func (l *Layer) want(n int) {
	before := l.waiting
	l.waiting += n
	if before == 0 {
		l.idle = make(chan struct{})
	}
	if l.waiting == 0 {
		close(l.idle)
	}
}

// bring reads bytes of a layer as they are in the registry.
func bring(ctx context.Context, blob source.Blob, off, n int64) ([]byte, error) {
	r, err := blob.Open(ctx, off, n)
	if err != nil {
		return nil, err
	}
	defer r.Close() // the bytes are here, or err says why not
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("read %s at byte %d: %w", blob.Info().Name, off, err)
	}
	return b, nil
}
