package transfer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/guestdisk"
)

// compared writes a backup of the disk from a file of it, as of a machine that does not run.
func (h *history) compared(parent string) task.Report {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), task.DiskFile)
	if err := os.WriteFile(path, h.disk, 0o600); err != nil {
		h.t.Fatal(err)
	}
	r := guestdisk.NewJob(task.BackUp{Version: task.Version, Set: h.set, Checkpoint: checkpoint(len(h.moments)), Parent: parent, Compare: parent != "",
		Disks: []string{"root"}, Files: map[string]string{"root": path}}).Run(h.t.Context())
	if r.Outcome != task.Done {
		h.t.Fatalf("%+v", r)
	}
	h.moments = append(h.moments, append([]byte(nil), h.disk...))
	return r
}

// TestCompared: increments that are found by comparing are every moment of a disk that is written to in any way and grows, and have only what changed.
func TestCompared(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, 6<<20+512, seed)
			h.write(40)
			parent := ""
			for n := range 6 {
				r := h.compared(parent)
				if r.Backup.Incremental != (n > 0) {
					t.Fatalf("backup %d: %+v", n, r.Backup)
				}
				m, _, err := backup.Find(t.Context(), h.set, checkpoint(n))
				if most := int64(len(h.changed)+8) * block; err != nil || n > 0 && m.Disks[0].Bytes > most {
					t.Errorf("backup %d has %d bytes, at most %d changed: %v", n, m.Disks[0].Bytes, most, err)
				}
				clear(h.changed)
				parent = checkpoint(n)
				if n == 3 {
					h.grow(3<<20 - 512)
				}
				if n != 2 { // nothing changes once
					h.write(12)
				}
			}
			for n := range h.moments {
				k := h.restore(n)
				if r := New(k).Run(t.Context()); r.Outcome != task.Done {
					t.Fatalf("moment %d: %+v", n, r)
				}
				wantMoment(t, k.Target.Path, h.moments[n])
			}
		})
	}
}

// TestComparedWithDamage: a backup that is damaged, missing, or of a larger disk is not built on; all data is written, and it is said why.
func TestComparedWithDamage(t *testing.T) {
	for name, row := range map[string]struct {
		harm func(h *history) error
		says string
	}{
		"a byte changed": {func(h *history) error {
			path := filepath.Join(h.set, "b0", "root.qcow2")
			p, err := os.ReadFile(path)
			if err == nil {
				p[len(p)-100] ^= 1
				err = os.WriteFile(path, p, 0o600)
			}
			return err
		}, "cannot be read in the claim"},
		"no image":  {func(h *history) error { return os.Remove(filepath.Join(h.set, "b0", "root.qcow2")) }, "cannot be read in the claim"},
		"no backup": {func(h *history) error { return os.RemoveAll(filepath.Join(h.set, "b0")) }, "cannot be read in the claim"},
		"a link": {func(h *history) error {
			p := filepath.Join(h.set, "b0", "root.qcow2")
			_ = os.Remove(p)
			return os.Symlink("/etc/passwd", p)
		}, "cannot be read in the claim"},
	} {
		h := newHistory(t, 4<<20, 3)
		h.write(20)
		h.compared("")
		if err := row.harm(h); err != nil {
			t.Fatal(err)
		}
		r := h.compared("b0")
		if r.Backup.Incremental || !strings.Contains(r.Backup.Full, row.says) {
			t.Errorf("%s: %+v", name, r.Backup)
		}
		k := h.restore(1)
		if r := New(k).Run(t.Context()); r.Outcome != task.Done {
			t.Fatalf("%s: %+v", name, r)
		}
		wantMoment(t, k.Target.Path, h.moments[1])
	}
}

// TestZeroesAreNotStored: a disk that does not tell where it has zeroes takes no more room in a backup than one that does, and is counted so.
func TestZeroesAreNotStored(t *testing.T) {
	h := newHistory(t, 32<<20, 5)
	copy(h.disk[20<<20:], "data")
	if r := h.compared(""); r.Virtual != 32<<20 || r.Written > 1<<20 {
		t.Errorf("%d of %d bytes are stored", r.Written, r.Virtual)
	}
	k := h.restore(0)
	if r := New(k).Run(t.Context()); r.Outcome != task.Done {
		t.Fatalf("%+v", r)
	}
	wantMoment(t, k.Target.Path, h.moments[0])
}
