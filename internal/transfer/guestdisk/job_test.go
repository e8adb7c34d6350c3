package guestdisk_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/guestdisk"
)

// TestRefusedTasks: what makes no sense is never tried again, and what cannot be reached is.
func TestRefusedTasks(t *testing.T) {
	good := task.BackUp{Version: task.Version, Address: "127.0.0.1:1", Server: "x", TLSDir: t.TempDir(), Set: filepath.Join(t.TempDir(), "web"), Checkpoint: "b1", Disks: []string{"root"}}
	for name, row := range map[string]struct {
		change func(*task.BackUp)
		reason task.Reason
		says   string
	}{
		"another version": {func(b *task.BackUp) { b.Version = 9 }, task.BadTask, "task version 9"},
		"no disks":        {func(b *task.BackUp) { b.Disks = nil }, task.BadTask, "no disks"},
		"no set":          {func(b *task.BackUp) { b.Set = "" }, task.BadTask, "no set"},
		"no keys":         {func(*task.BackUp) {}, task.BadTask, "certificate"},
		"no directory":    {func(b *task.BackUp) { b.Set = "/dev/null/x" }, task.TargetFailed, "make the directory"},
	} {
		b := good
		row.change(&b)
		r := guestdisk.NewJob(b).Run(t.Context())
		if r.Reason != row.reason || r.Outcome != row.reason.Outcome() || !strings.Contains(r.Detail, row.says) || r.Backup != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
