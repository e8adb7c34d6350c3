package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/encode"
)

const block = 64 << 10

// set is a disk in a file that changes, and its backups.
type set struct {
	dir, path string
	size      int64
	rng       *rand.Rand
	data      map[int64]bool // blocks with anything but zeroes
	changed   map[int64]bool // blocks since the last backup
	backups   int
}

// newSet makes a disk with so much data in eight places of it.
func newSet(dir string, size, data int64, seed uint64) (*set, error) {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // G404: the same disk each time
	s := &set{dir: dir, path: dir + ".img", size: size, rng: rng, data: map[int64]bool{}, changed: map[int64]bool{}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(s.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const parts = 8
	for part := range int64(parts) {
		begin := size / parts * part / block
		for b := begin; (b-begin)*block < data/parts && b*block < size; b++ {
			if err := s.fill(f, b); err != nil {
				return nil, err
			}
		}
	}
	return s, f.Truncate(size)
}

// fill writes a block of noise, and counts it.
func (s *set) fill(f *os.File, b int64) error {
	var p [block]byte
	for at := 0; at < block; at += 8 {
		n := s.rng.Uint64()
		for i := range 8 {
			p[at+i] = byte(n >> (8 * i))
		}
	}
	s.data[b], s.changed[b] = true, true
	_, err := f.WriteAt(p[:min(block, s.size-b*block)], b*block)
	return err
}

// change writes so many blocks again, most of them where there is data; of every eighth it makes zeroes.
func (s *set) change(blocks int) error {
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	all := s.size / block
	for n := range blocks {
		b := s.rng.Int64N(all)
		if !s.data[b] && n%8 != 1 {
			b = b * 8 / all * (all / 8) // the beginning of the part of the disk that it is in
			b += s.rng.Int64N(max(1, int64(len(s.data))/8))
		}
		if n%8 == 0 {
			if _, err := f.WriteAt(make([]byte, block), b*block); err != nil {
				return err
			}
			delete(s.data, b)
			s.changed[b] = true
			continue
		}
		if err := s.fill(f, b); err != nil {
			return err
		}
	}
	return f.Sync()
}

// whole is the disk as it is.
func (s *set) whole() backup.Source {
	return backup.Source{Name: "root", Disk: encode.Disk{ReaderAt: &opened{path: s.path}, Size: s.size, Data: in(s.data)}}
}

// opened is a file that is opened for each read, so that nothing has to close it.
type opened struct{ path string }

func (o *opened) ReadAt(p []byte, off int64) (int, error) {
	f, err := os.Open(o.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.ReadAt(p, off)
}

// in returns where in a part of the disk one of the blocks is.
func in(blocks map[int64]bool) func(context.Context, int64, int64) ([][2]int64, error) {
	return func(_ context.Context, from, to int64) (out [][2]int64, err error) {
		for b := from / block; b*block < to; b++ {
			if !blocks[b] {
				continue
			}
			if n := len(out); n > 0 && out[n-1][0]+out[n-1][1] == b*block {
				out[n-1][1] += block
				continue
			}
			out = append(out, [2]int64{b * block, block})
		}
		return out, nil
	}
}

func name(n int) string { return fmt.Sprintf("b%d", n) }

// back writes a backup: the first whole, the others what changed.
func (s *set) back(ctx context.Context) error {
	p := backup.Plan{Checkpoint: name(s.backups), Created: time.Unix(int64(s.backups), 0), Disks: []backup.Source{s.whole()}}
	if s.backups > 0 {
		p.Parent, p.Disks[0].Changed = name(s.backups-1), in(s.changed)
	}
	if _, err := backup.Write(ctx, s.dir, p); err != nil {
		return err
	}
	s.backups++
	s.changed = map[int64]bool{}
	return nil
}

// source is the disk at a backup, as a task has it.
func (s *set) source(n int) task.Source {
	return task.Source{Backup: &task.Backup{Set: task.Source{Local: &task.Local{Path: s.dir}}, Checkpoint: name(n), Disk: "root"}}
}

// files is the same by the files alone.
func (s *set) files(n int) task.Source {
	c := &task.Chain{}
	for i := range n + 1 {
		c.Files = append(c.Files, task.Source{Local: &task.Local{Path: filepath.Join(s.dir, name(i), "root.qcow2")}})
	}
	return task.Source{Chain: c}
}

// same compares two disks; behind the end of the shorter one there are zeroes.
func same(a, b string) error {
	n, err := differing(a, b)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d blocks differ", n)
	}
	return err
}

func differing(a, b string) (n int, err error) {
	f, err := os.Open(a)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	g, err := os.Open(b)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	p, q := make([]byte, block), make([]byte, block)
	for {
		x, errX := io.ReadFull(f, p)
		y, errY := io.ReadFull(g, q)
		clear(p[x:])
		clear(q[y:])
		if !bytes.Equal(p, q) {
			n++
		}
		if x < block && y < block {
			return n, errors.Join(unexpected(errX), unexpected(errY))
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// histories restores moments of random disks, and counts the blocks that differ from what the disk was.
func histories(ctx context.Context, dir string, count int) (blocks int, err error) {
	for h := range count {
		at := filepath.Join(dir, fmt.Sprint(h))
		rng := rand.New(rand.NewPCG(uint64(h), 2)) //nolint:gosec // G404: the same history each time
		s, err := newSet(filepath.Join(at, "set"), int64(16+rng.IntN(240))*block, int64(8+rng.IntN(64))*block, uint64(h))
		if err != nil {
			return 0, err
		}
		n := 1 + rng.IntN(links)
		for i := range n {
			if i > 0 {
				if err := s.change(1 + rng.IntN(20)); err != nil {
					return 0, err
				}
			}
			if err := s.back(ctx); err != nil {
				return 0, err
			}
		}
		out := filepath.Join(at, "out")
		if err := restore(ctx, s.source(n-1), out); err != nil {
			return 0, err
		}
		d, err := differing(out, s.path)
		if err != nil {
			return 0, err
		}
		blocks += d
		if err := os.RemoveAll(at); err != nil {
			return 0, err
		}
	}
	return blocks, nil
}

// wrong damages copies of a set, each in one place, and counts those that are restored all the same although their disk is another one or their files are.
func wrong(ctx context.Context, dir string, count int) (accepted int, err error) {
	s, err := newSet(filepath.Join(dir, "set"), 64*block, 24*block, 7)
	if err != nil {
		return 0, err
	}
	for n := range links {
		if n > 0 {
			if err := s.change(5); err != nil {
				return 0, err
			}
		}
		if err := s.back(ctx); err != nil {
			return 0, err
		}
	}
	rng := rand.New(rand.NewPCG(9, 9)) //nolint:gosec // G404: the same damage each time
	for range count {
		damaged := *s
		damaged.dir = filepath.Join(dir, "damaged")
		if err := os.CopyFS(damaged.dir, os.DirFS(s.dir)); err != nil {
			return 0, err
		}
		if err := damaged.damage(rng); err != nil {
			return 0, err
		}
		out := filepath.Join(dir, "out")
		if restore(ctx, damaged.source(links-1), out) == nil {
			accepted++
		}
		if err := errors.Join(os.RemoveAll(damaged.dir), os.RemoveAll(out)); err != nil {
			return 0, err
		}
	}
	return accepted, nil
}

// damage changes one file of one link: a byte, its length, or which file it is; or leaves it out. The manifest of the newest is left alone, for nothing here proves that.
func (s *set) damage(rng *rand.Rand) error {
	files := []string{"root.qcow2", "root.sums", backup.ManifestFile}
	file, n := files[rng.IntN(len(files))], rng.IntN(links)
	if file == backup.ManifestFile {
		n = rng.IntN(links - 1)
	}
	path := filepath.Join(s.dir, name(n), file)
	p, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	switch rng.IntN(4) {
	case 0:
		p[rng.IntN(len(p))] ^= byte(1 + rng.IntN(255))
	case 1:
		p = p[:rng.IntN(len(p))]
	case 2:
		other := (n + 1 + rng.IntN(links-2)) % (links - 1)
		if other == n {
			other = (n + 1) % links
		}
		if p, err = os.ReadFile(filepath.Join(s.dir, name(other), file)); err != nil {
			return err
		}
	case 3:
		return os.Remove(path)
	}
	return os.WriteFile(path, p, 0o600)
}

// lastStage is how long the last stage of an import in stages takes: 64 MiB of changes, from a server.
func (b *bench) lastStage(ctx context.Context, out string) (float64, error) {
	s, err := newSet(filepath.Join(b.dir, "staged"), b.disk<<20, b.data<<20, 3)
	if err != nil {
		return 0, err
	}
	defer func() { _ = errors.Join(os.RemoveAll(s.dir), os.Remove(s.path)) }() // the next run makes them again
	if err := s.back(ctx); err != nil {
		return 0, err
	}
	server := httptest.NewServer(http.FileServer(http.Dir(s.dir)))
	defer server.Close()
	bring := func(previous, current string) error {
		r := transfer.New(task.Task{Version: task.Version, Volume: "bench/disk", Claim: "claim", Source: task.Source{HTTP: &task.HTTP{URL: server.URL + "/" + current}},
			Target: task.Target{Path: filepath.Join(out, "disk.img"), Content: task.Disk}, Checkpoint: &task.Checkpoint{Previous: previous, Current: current}}).Run(ctx)
		if r.Outcome != task.Done {
			return fmt.Errorf("%s: %s", r.Reason, r.Detail)
		}
		return nil
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		return 0, err
	}
	defer os.RemoveAll(out)
	if err := os.Rename(filepath.Join(s.dir, "b0", "root.qcow2"), filepath.Join(s.dir, "full")); err != nil {
		return 0, err
	}
	if err := bring("", "full"); err != nil {
		return 0, err
	}
	if err := s.change((64 << 20) / block); err != nil {
		return 0, err
	}
	d := s.whole().Disk
	d.Below = &encode.Below{Name: "full", Changed: in(s.changed)}
	image, err := encode.QCOW2(ctx, d)
	if err != nil {
		return 0, err
	}
	f, err := os.Create(filepath.Join(s.dir, "last"))
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(f, io.NewSectionReader(image, 0, image.Size()))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return 0, err
	}
	if err := b.forget(); err != nil {
		return 0, err
	}
	begin := time.Now()
	b.used = processors()
	err = bring("full", "last")
	took := time.Since(begin).Seconds()
	b.cpu[stage] = append(b.cpu[stage], processors()-b.used)
	if err == nil {
		err = same(filepath.Join(out, "disk.img"), s.path)
	}
	return took, err
}
