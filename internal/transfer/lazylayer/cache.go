package lazylayer

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Cache keeps pieces and indexes of layers in a directory of its own. It holds no more than its limit and evicts what was used
// longest ago. A piece may be damaged after a power failure: its reader verifies the checksum.
type Cache struct {
	dir   string
	limit int64
	ctx   context.Context
	stop  context.CancelFunc

	fetches chan struct{} // a place for each fetch that runs, and for each pass
	passes  chan struct{}

	opening sync.Mutex // guards open, and opening and closing layers
	open    map[string]*Layer

	mu      sync.Mutex
	used    int64
	entries map[string]*list.Element // by path below dir
	order   *list.List               // of *kept, the last used one first
	layers  map[string]*storedLayer
}

// kept is one piece.
type kept struct {
	layer string
	piece int64
	size  int64
}

// storedLayer is the record of a layer that is stored besides its pieces.
type storedLayer struct {
	open bool
	size int64 // of its index
	used time.Time
}

// atOnce is how many fetches run at a time, of all layers, and how many passes: each holds some MiB.
const atOnce = 4

const indexName, statesName = "index.json", "states"

// LeastCache is the smallest limit: the pieces that are in use at a time fit it, and the index of a layer of some GB.
const LeastCache = 64 << 20

func (k *kept) path() string { return piecePath(k.layer, k.piece) }

func piecePath(layer string, piece int64) string {
	return filepath.Join(layer, strconv.FormatInt(piece, 10))
}

// OpenCache looks at what is in dir from before. Layers whose pass was not finished are deleted, because they were not verified.
func OpenCache(dir string, limit int64) (*Cache, error) {
	if limit < LeastCache {
		return nil, fmt.Errorf("a cache of %d bytes: at least %d are needed", limit, int64(LeastCache))
	}
	return openCache(dir, limit)
}

func openCache(dir string, limit int64) (*Cache, error) {
	c := &Cache{dir: dir, limit: limit, entries: map[string]*list.Element{}, order: list.New(), layers: map[string]*storedLayer{}, open: map[string]*Layer{},
		fetches: make(chan struct{}, atOnce), passes: make(chan struct{}, atOnce)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the cache: %w", err)
	}
	for _, e := range found {
		if !e.IsDir() || !isLayer(e.Name()) {
			continue // not ours (lost+found)
		}
		if err := c.find(e.Name()); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evict(0)
	return c, nil
}

// Close ends all reads of all layers. Each is still to be closed.
func (c *Cache) Close() { c.stop() }

// isLayer reports whether the name of a directory is a digest without its algorithm.
func isLayer(name string) bool {
	return len(name) == 64 && strings.Trim(name, "0123456789abcdef") == ""
}

// find takes in what there is of a layer.
func (c *Cache) find(layer string) error {
	dir := filepath.Join(c.dir, layer)
	index, err := os.Stat(filepath.Join(dir, indexName))
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("delete an unfinished layer of the cache: %w", err)
		}
		return nil
	}
	files, readErr := os.ReadDir(dir)
	if err = errors.Join(err, readErr); err != nil {
		return fmt.Errorf("read the cache: %w", err)
	}
	s := &storedLayer{size: index.Size(), used: index.ModTime()}
	c.layers[layer] = s
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return fmt.Errorf("read the cache: %w", err)
		}
		piece, notPiece := strconv.ParseInt(f.Name(), 10, 64)
		switch {
		case f.Name() == statesName:
			s.size += info.Size()
		case f.Name() == indexName:
		case notPiece != nil:
			_ = os.Remove(filepath.Join(dir, f.Name())) // half written; if it stays it is tried again at the next start
		default:
			c.add(&kept{layer, piece, info.Size()})
		}
	}
	c.used += s.size
	return nil
}

func (c *Cache) add(k *kept) {
	c.used += k.size
	c.entries[k.path()] = c.order.PushFront(k)
}

// evict makes room for n bytes: pieces first, then whole layers that are not open.
func (c *Cache) evict(n int64) {
	for c.used+n > c.limit && c.order.Len() > 0 {
		c.drop(c.order.Back())
	}
	for c.used+n > c.limit {
		oldest := ""
		for name, s := range c.layers {
			if !s.open && (oldest == "" || s.used.Before(c.layers[oldest].used)) {
				oldest = name
			}
		}
		if oldest == "" {
			return
		}
		c.used -= c.layers[oldest].size
		delete(c.layers, oldest)
		_ = os.RemoveAll(filepath.Join(c.dir, oldest)) // what stays is found, and counted, at the next start
	}
}

func (c *Cache) drop(e *list.Element) {
	k := c.order.Remove(e).(*kept)
	delete(c.entries, k.path())
	c.used -= k.size
	_ = os.Remove(filepath.Join(c.dir, k.path())) // as above
}

// file returns a piece as one, nil if it is not here. The caller closes it.
func (c *Cache) file(layer string, piece int64) *os.File {
	c.mu.Lock()
	e := c.entries[piecePath(layer, piece)]
	if e != nil {
		c.order.MoveToFront(e)
	}
	c.mu.Unlock()
	if e == nil {
		return nil
	}
	f, err := os.Open(filepath.Join(c.dir, piecePath(layer, piece)))
	if err != nil {
		return nil // evicted meanwhile, or in use
	}
	return f
}

// load returns a whole piece, nil if it is not here.
func (c *Cache) load(layer string, piece int64) []byte {
	f := c.file(layer, piece)
	if f == nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, pieceSize+1))
	if err != nil {
		return nil
	}
	return b
}

// forget deletes a piece that is damaged.
func (c *Cache) forget(layer string, piece int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[piecePath(layer, piece)]; e != nil {
		c.drop(e)
	}
}

// store keeps a piece if it can: a full volume only costs time.
func (c *Cache) store(layer string, piece int64, b []byte) error {
	path := piecePath(layer, piece)
	c.mu.Lock()
	if e := c.entries[path]; e != nil {
		c.order.MoveToFront(e)
		c.mu.Unlock()
		return nil
	}
	c.evict(int64(len(b)))
	c.mu.Unlock()
	// Under another name first: a piece that is read while it is written would count as damaged.
	f, err := os.CreateTemp(filepath.Join(c.dir, layer), "new-*")
	if err != nil {
		return fmt.Errorf("keep a piece: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name()) // err is what matters
		return fmt.Errorf("keep a piece: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[path] != nil { // two had the same thought
		_ = os.Remove(f.Name())
		return nil
	}
	if err := os.Rename(f.Name(), filepath.Join(c.dir, path)); err != nil {
		_ = os.Remove(f.Name()) // err is what matters
		return fmt.Errorf("keep a piece: %w", err)
	}
	c.add(&kept{layer, piece, int64(len(b))})
	return nil
}

// use opens the stored layer: its directory exists and stays until the layer is released.
func (c *Cache) use(layer string) (string, error) {
	dir := filepath.Join(c.dir, layer)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.layers[layer]
	if s == nil {
		s = &storedLayer{}
		c.layers[layer] = s
	}
	if s.open {
		return "", fmt.Errorf("the layer %s is open already", layer)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make room for a layer: %w", err)
	}
	s.open = true
	return dir, nil
}

// restart deletes what there is of a layer that is open: its pass begins again.
func (c *Cache) restart(layer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear(layer)
	s := c.layers[layer]
	c.used -= s.size
	s.size = 0
	for _, name := range []string{indexName, statesName} {
		_ = os.Remove(filepath.Join(c.dir, layer, name)) // it is written again
	}
}

// charge counts n bytes of a layer's index.
func (c *Cache) charge(layer string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evict(n)
	c.layers[layer].size += n
	c.used += n
}

// release lets a layer go. What there is of one that was not finished is deleted.
func (c *Cache) release(layer string, finished bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.layers[layer]
	s.open, s.used = false, time.Now()
	if finished {
		return
	}
	c.clear(layer)
	c.used -= s.size
	delete(c.layers, layer)
	_ = os.RemoveAll(filepath.Join(c.dir, layer)) // what stays is deleted at the next start
}

// clear drops a layer's pieces.
func (c *Cache) clear(layer string) {
	for _, e := range slices.Collect(c.of(layer)) {
		c.drop(e)
	}
}

func (c *Cache) of(layer string) func(func(*list.Element) bool) {
	return func(yield func(*list.Element) bool) {
		for e := c.order.Front(); e != nil; e = e.Next() {
			if e.Value.(*kept).layer == layer && !yield(e) {
				return
			}
		}
	}
}

// Used returns how many bytes are kept.
func (c *Cache) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}
