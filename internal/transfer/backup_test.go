package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/encode"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

// history is a disk that is written to at random, and what it was at each checkpoint.
type history struct {
	t       *testing.T
	set     string
	rng     *rand.Rand
	disk    []byte
	changed map[int64]bool // blocks of 64 KiB since the last checkpoint
	moments [][]byte
}

const block = 64 << 10

func newHistory(t *testing.T, size int, seed uint64) *history {
	return &history{t: t, set: t.TempDir(), rng: rand.New(rand.NewPCG(seed, 1)), disk: make([]byte, size), changed: map[int64]bool{}}
}

// write changes the disk in some places: with data, or to zeroes.
func (h *history) write(places int) {
	for range places {
		n := 1 + h.rng.IntN(3*block)
		at := h.rng.IntN(len(h.disk) - n)
		if h.rng.IntN(3) == 0 {
			clear(h.disk[at : at+n])
		} else {
			copy(h.disk[at:], bytes.Repeat([]byte{byte(1 + h.rng.IntN(255))}, n))
		}
		for b := at / block; b*block < at+n; b++ {
			h.changed[int64(b)] = true
		}
	}
}

// grow makes the disk larger.
func (h *history) grow(n int) { h.disk = append(h.disk, make([]byte, n)...) }

// source is the disk as it is now.
func (h *history) source() backup.Source {
	now := bytes.Clone(h.disk)
	return backup.Source{Name: "root", Disk: encode.Disk{ReaderAt: bytes.NewReader(now), Size: int64(len(now)), Data: func(_ context.Context, from, to int64) ([][2]int64, error) {
		var data [][2]int64
		for at := from; at < to; at += zeropage.Size {
			if n := min(zeropage.Size, to-at); !zeropage.IsZero(now[at : at+n]) {
				data = append(data, [2]int64{at, n})
			}
		}
		return data, nil
	}}}
}

func checkpoint(n int) string { return fmt.Sprintf("b%d", n) }

// back writes a backup of the disk: whole, or what changed since the last.
func (h *history) back() {
	h.t.Helper()
	n := len(h.moments)
	p := backup.Plan{Checkpoint: checkpoint(n), Disks: []backup.Source{h.source()}}
	if n > 0 {
		p.Parent = checkpoint(n - 1)
		changed := h.changed
		p.Disks[0].Changed = func(_ context.Context, from, to int64) ([][2]int64, error) {
			var in [][2]int64
			for b := from / block; b*block < to; b++ {
				if changed[b] {
					in = append(in, [2]int64{b * block, min(block, to-b*block)})
				}
			}
			return in, nil
		}
	}
	if _, err := backup.Write(h.t.Context(), h.set, p); err != nil {
		h.t.Fatal(err)
	}
	h.changed = map[int64]bool{}
	h.moments = append(h.moments, bytes.Clone(h.disk))
}

// restore is a task that brings a moment to a new disk.
func (h *history) restore(n int) task.Task {
	return task.Task{
		Version: task.Version, Volume: "ns/vol", Claim: "claim",
		Source: task.Source{Backup: &task.Backup{Set: task.Source{Local: &task.Local{Path: h.set}}, Checkpoint: checkpoint(n), Disk: "root"}},
		Target: task.Target{Path: filepath.Join(h.t.TempDir(), "disk.img"), Content: task.Disk},
	}
}

// wantMoment compares a disk with what it should be, with zeroes behind it.
func wantMoment(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < len(want) || !zeropage.IsZero(got[len(want):]) {
		t.Fatalf("the disk has %d bytes, want %d", len(got), len(want))
	}
	if !bytes.Equal(got[:len(want)], want) {
		t.Fatal("the disk is not what it was")
	}
}

// TestBackup: every moment of a disk that was backed up ten times has the content that the disk had then, and a larger claim has
// zeroes behind it.
func TestBackup(t *testing.T) {
	h := newHistory(t, 20<<20+512, 1)
	h.write(60)
	for n := range 10 {
		h.back()
		if n == 4 {
			h.grow(5<<20 - 512)
		}
		h.write(12)
	}
	for n := range h.moments {
		k := h.restore(n)
		k.Target.Size = 32 << 20
		if r := New(k).Run(t.Context()); r.Outcome != task.Done || r.Format != "chain" {
			t.Fatalf("moment %d: %+v", n, r)
		}
		wantMoment(t, k.Target.Path, h.moments[n])
	}
}

// TestSetBelowALink: the set is below the place that is mounted; a link there that leads elsewhere is not followed.
func TestSetBelowALink(t *testing.T) {
	h := newHistory(t, 1<<20, 7)
	h.write(3)
	h.back()
	in := h.restore(0)
	mounted := filepath.Dir(h.set)
	in.Source.Backup.Set.Local.Path, in.Source.Backup.Path = mounted, filepath.Base(h.set)
	if r := New(in).Run(t.Context()); r.Outcome != task.Done {
		t.Fatalf("%+v", r)
	}
	wantMoment(t, in.Target.Path, h.moments[0])

	in = h.restore(0)
	outside := t.TempDir()
	if err := os.Symlink(h.set, filepath.Join(outside, "web")); err != nil {
		t.Fatal(err)
	}
	in.Source.Backup.Set.Local.Path, in.Source.Backup.Path = outside, "web"
	if r := New(in).Run(t.Context()); r.Outcome == task.Done {
		t.Error("a link out of the claim is followed")
	}
	if _, err := os.Stat(in.Target.Path); err == nil {
		t.Error("something was written")
	}
}
