package layercache

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A layer has three files, named by its chain: what machines read, the tree that the next layer is laid over, and a note of what it is. The note
// is written last and removed first, so what has a note is complete.
const (
	diskEnd = ".qcow2"
	treeEnd = ".tree"
	noteEnd = ".json"
	halfEnd = ".half" // of files that are being written
)

// note is the stored description of a layer.
type note struct {
	Layer
	Depth  int      `json:"depth"` // how many layers are below it
	Digest string   `json:"digest"`
	Blob   int64    `json:"blob"` // bytes of it, compressed
	Sums   [][]byte `json:"sums"` // of its pieces
}

// kept is a layer that is there.
type kept struct {
	note
	chain string
	bytes int64
	used  time.Time
}

// Cache is a directory of layers with a bound.
type Cache struct {
	dir   string // where it writes
	view  string // the same directory, mounted read-only: a file that is opened there cannot be opened for writing by its receiver
	bound int64
	log   *slog.Logger
	// Spare returns how much of the free space of the medium may be used; nil: all.
	Spare func() int64

	mu     sync.Mutex
	layers map[string]*kept // by chain
	taken  int64            // bytes of all files, and of those that are being written
	turns  turns            // one layer at a time is made
	// what it has done, see Counts
	made, shared, letGo, refused int64
}

// Open takes a directory that holds what an earlier cache left there. What is half made is removed.
func Open(dir, view string, bound int64, log *slog.Logger) (*Cache, error) {
	s := &Cache{dir: dir, view: view, bound: bound, log: log, layers: map[string]*kept{}}
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the cache: %w", err)
	}
	for _, f := range all {
		if chain, ok := strings.CutSuffix(f.Name(), noteEnd); ok {
			if k, err := s.read(chain); err == nil {
				s.layers[chain] = k
				s.taken += k.bytes
			}
		}
	}
	for _, f := range all {
		chain := strings.TrimSuffix(f.Name(), filepath.Ext(f.Name()))
		if s.layers[chain] == nil || filepath.Ext(f.Name()) == halfEnd {
			if err := os.RemoveAll(filepath.Join(dir, f.Name())); err != nil {
				return nil, fmt.Errorf("tidy the cache: %w", err)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.room(0) // the bound may have been higher; what is in use stays
	return s, nil
}

// read looks at a layer that is there.
func (s *Cache) read(chain string) (*kept, error) {
	path := filepath.Join(s.dir, chain+noteEnd)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	k := &kept{chain: chain}
	if err := json.Unmarshal(text, &k.note); err != nil {
		return nil, err
	}
	for _, end := range []string{diskEnd, treeEnd, noteEnd} {
		info, err := os.Stat(filepath.Join(s.dir, chain+end))
		if err != nil {
			return nil, err
		}
		k.bytes += stored(info)
		k.used = info.ModTime()
	}
	return k, nil
}

// stored returns what a file takes of its medium.
func stored(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

// chainOf names a layer over others: by the digests of all of them.
func chainOf(below, digest string) string {
	sum := sha256.Sum256([]byte(below + "\n" + digest + "\n"))
	return hex.EncodeToString(sum[:])
}

// find returns the layer of a chain; nil: it is not there.
func (s *Cache) find(chain string) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layers[chain]
}

// use notes that the layers of a chain are used now. They are used together: the one on top goes first, because it is of no use without the others.
func (s *Cache) use(chains []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, c := range chains {
		if k := s.layers[c]; k != nil {
			k.used = now
			_ = os.Chtimes(filepath.Join(s.dir, c+noteEnd), now, now) // if not, it only goes sooner
		}
	}
}

var errFull = errors.New("there is no room for it on this node")

// take has room made for so many bytes, and counts them as taken.
func (s *Cache) take(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.room(n); err != nil {
		return err
	}
	s.taken += n
	return nil
}

// give gives room back that was taken.
func (s *Cache) give(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
}

// fits reports whether there is room for n bytes more.
func (s *Cache) fits(n int64) bool {
	return s.taken+n <= s.bound && (s.Spare == nil || n <= s.Spare())
}

// FreeAbove returns a function for Spare: the free space of a medium, less the part that is left to others, which is a tenth of
// the medium and at most others bytes.
func FreeAbove(dir string, others int64) (func() int64, error) {
	look := func() (int64, error) {
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err != nil {
			return 0, fmt.Errorf("measure the medium of the layers: %w", err)
		}
		return int64(s.Bavail)*s.Bsize - min(int64(s.Blocks)*s.Bsize/10, others), nil
	}
	_, err := look()
	return func() int64 {
		free, err := look()
		if err != nil {
			return 0
		}
		return free
	}, err
}

// room evicts layers until n more bytes fit below the bound: least recently used first, and none that is open.
func (s *Cache) room(n int64) error {
	if s.fits(n) {
		return nil
	}
	all := make([]*kept, 0, len(s.layers))
	for _, k := range s.layers {
		all = append(all, k)
	}
	slices.SortFunc(all, leaves)
	for _, k := range all {
		if s.fits(n) {
			return nil
		}
		if s.held(k.chain) {
			continue
		}
		if err := s.remove(k.chain); err != nil {
			return err
		}
		s.log.Info("a layer is let go", "chain", k.chain, "bytes", k.bytes)
		s.taken -= k.bytes
		s.letGo++
		delete(s.layers, k.chain)
	}
	if !s.fits(n) {
		return errFull
	}
	return nil
}

// leaves orders layers by which is removed first.
func leaves(a, b *kept) int {
	return cmp.Or(a.used.Compare(b.used), cmp.Compare(b.Depth, a.Depth), cmp.Compare(a.chain, b.chain))
}

// held reports whether a process has the layer open: the kernel grants a write lease only on a file that no one else has open.
func (s *Cache) held(chain string) bool {
	f, err := os.OpenFile(filepath.Join(s.dir, chain+diskEnd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer func() { _ = f.Close() }()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return true
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return err != nil
}

// remove removes a layer's files, the note first.
func (s *Cache) remove(chain string) error {
	for _, end := range []string{noteEnd, treeEnd, diskEnd} {
		if err := os.Remove(filepath.Join(s.dir, chain+end)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("let a layer go: %w", err)
		}
	}
	return nil
}

// open opens a layer for a client: for reading, on the read-only mount. Each client has an open file of its own.
func (s *Cache) open(chain string) (*os.File, error) {
	return os.OpenFile(filepath.Join(s.view, chain+diskEnd), os.O_RDONLY|unix.O_NONBLOCK, 0)
}
