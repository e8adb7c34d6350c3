package layercache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/berth-vm/berth/internal/imagevm"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/erofs"
	"github.com/berth-vm/berth/internal/transfer/layerdisk"
)

// Limits of what is made for all: lower than what a machine makes for itself, because all clients share the memory for it.
var limits = erofs.Limits{Entries: 250_000, All: 600_000, Bytes: 32 << 30, Steps: 40 * 250_000}

// step is how much space is reserved at a time while a file grows.
const step = 1 << 20

// partialFile is a file that is being written, and the space that is reserved for it.
type partialFile struct {
	*os.File
	s     *Cache
	taken int64
	most  int64           // how long it becomes; 0: that is not known
	ctx   context.Context // nil: it may take any time
}

// begin makes a temporary file without the layer's final name.
func (s *Cache) begin() (*partialFile, error) {
	f, err := os.CreateTemp(s.dir, "*"+halfEnd)
	if err != nil {
		return nil, fmt.Errorf("make room: %w", err)
	}
	return &partialFile{File: f, s: s}, nil
}

// WriteAt implements io.WriterAt.
func (h *partialFile) WriteAt(p []byte, off int64) (int, error) {
	if h.ctx != nil && h.ctx.Err() != nil {
		return 0, context.Cause(h.ctx)
	}
	if err := h.reach(off + int64(len(p))); err != nil {
		return 0, err
	}
	return h.File.WriteAt(p, off)
}

// reach takes room for a file of so many bytes.
func (h *partialFile) reach(end int64) error {
	if end <= h.taken {
		return nil
	}
	more := max(step, end-h.taken)
	if h.most >= end {
		more = min(more, h.most-h.taken)
	}
	if err := h.s.take(more); err != nil {
		return err
	}
	h.taken += more
	return nil
}

// drop removes the file, unless it has a name by now, and gives its room back.
func (h *partialFile) drop() {
	_ = h.Close()
	_ = os.Remove(h.Name())
	h.s.give(h.taken)
}

// keep gives the file its name. Only processes that were handed the file can read it.
func (h *partialFile) keep(name string) error {
	return errors.Join(h.Chmod(0o444), h.Sync(), os.Rename(h.Name(), filepath.Join(h.s.dir, name)))
}

// place is the position in a stack at which a layer is requested.
type place struct {
	below []*os.File // the layers below, open, the lowest first
	over  []string   // their chains
	disk  layerdisk.Disk
}

// chain returns the name of the uppermost layer; empty: there is none.
func (p *place) chain() string {
	if len(p.over) == 0 {
		return ""
	}
	return p.over[len(p.over)-1]
}

// make converts a layer whose blob is complete and verified, unless another request did so meanwhile.
func (s *Cache) make(ctx context.Context, t *clientTalk, chain string, n note, blob io.Reader) (bool, error) {
	turn, done, err := s.turns.take(ctx, t.from, t.pace)
	if err != nil {
		return false, err
	}
	defer done()
	if k := s.find(chain); k != nil {
		return false, nil
	}
	err = s.convert(turn, &t.at, chain, n, blob)
	return err == nil, err
}

// convert makes a layer, and gives up when ctx ends: at the next byte that it reads or writes.
func (s *Cache) convert(ctx context.Context, p *place, chain string, n note, blob io.Reader) error {
	tree, err := s.tree(p)
	if err != nil {
		return err
	}
	disk, err := s.begin()
	if err != nil {
		return err
	}
	defer disk.drop()
	disk.ctx = ctx
	plain, err := decode.Open(blob, decode.Options{Limit: 2 * limits.Bytes})
	if err != nil {
		return err
	}
	defer func() { _ = plain.Close() }()
	summed := &hashingReader{ctx: ctx, r: plain, hash: sha256.New()}
	n.Depth = len(p.below)
	_, err = p.disk.Layer(disk, layerdisk.LayerFile(n.Depth-1), imagevm.LayerName(n.Depth), func(w layerdisk.File) (int64, error) {
		made, err := erofs.Convert(summed, w, tree, limits)
		n.Size, n.Alone = made.Size, made.Alone
		return made.Size, err
	})
	if err == nil {
		_, err = io.Copy(io.Discard, summed)
	}
	switch { // what the layer's writer says of these is that the archive is broken
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errFull):
		return errFull
	case err != nil:
		return err
	}
	n.Diff = "sha256:" + hex.EncodeToString(summed.hash.Sum(nil))
	return s.settle(chain, n, disk, tree)
}

// settle writes what belongs to a layer's file, and gives all three their names.
func (s *Cache) settle(chain string, n note, disk *partialFile, tree *erofs.Tree) error {
	saved, err := s.begin()
	if err != nil {
		return err
	}
	defer saved.drop()
	if err := tree.Save(io.NewOffsetWriter(saved, 0)); err != nil {
		return fmt.Errorf("write the tree: %w", err)
	}
	noted, err := s.begin()
	if err != nil {
		return err
	}
	defer noted.drop()
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if _, err := noted.WriteAt(text, 0); err != nil {
		return fmt.Errorf("write the note: %w", err)
	}
	if err := errors.Join(disk.keep(chain+diskEnd), saved.keep(chain+treeEnd)); err != nil {
		return errors.Join(err, s.remove(chain))
	}
	if err := noted.keep(chain + noteEnd); err != nil {
		return errors.Join(err, s.remove(chain))
	}
	k, err := s.read(chain)
	if err != nil {
		return errors.Join(err, s.remove(chain))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers[chain] = k
	s.taken += k.bytes // what was taken for the files meanwhile is given back
	s.made++
	return nil
}

// tree returns what the layers below show.
func (s *Cache) tree(p *place) (*erofs.Tree, error) {
	if len(p.below) == 0 {
		return &erofs.Tree{}, nil
	}
	f, err := os.Open(filepath.Join(s.dir, p.chain()+treeEnd))
	if err != nil {
		return nil, fmt.Errorf("find what is below: %w", err)
	}
	defer func() { _ = f.Close() }()
	images := make([]io.ReaderAt, 0, len(p.below))
	for _, b := range p.below {
		images = append(images, layerdisk.Filesystem(b))
	}
	return erofs.LoadTree(f, images)
}

// hashingReader sums up what is read, until its time is over.
type hashingReader struct {
	ctx  context.Context
	r    io.Reader
	hash hash.Hash
}

func (s *hashingReader) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	n, err := s.r.Read(p)
	_, _ = s.hash.Write(p[:n])
	return n, err
}
