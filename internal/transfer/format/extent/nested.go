package extent

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// readers is how many tables are on their way at once: behind a network each costs a round trip.
const readers = 8

// Nested reads a table of tables. outer is called with pieces of the first and calls read for each table those name;
// they are read side by side, but only one do runs at a time, after outer or beside it.
func (f File) Nested(ctx context.Context, off, n int64, what string, outer func(at int64, p []byte, read ReadTable) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	var mu sync.Mutex
	read := func(off, n int64, what string, do func(at int64, p []byte) error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		g.Go(func() error {
			return f.Table(off, n, what, func(at int64, p []byte) error {
				mu.Lock()
				defer mu.Unlock()
				return do(at, p)
			})
		})
		return nil
	}
	err := f.Table(off, n, what, func(at int64, p []byte) error { return outer(at, p, read) })
	if failed := g.Wait(); failed != nil {
		return failed
	}
	return err
}

// ReadTable asks for one table of many, as File.Table does.
type ReadTable func(off, n int64, what string, do func(at int64, p []byte) error) error
