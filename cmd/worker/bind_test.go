package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/task"
)

// TestBind: a disk that a storage driver copied becomes as large as its claim, keeps its bytes, and is never made smaller.
func TestBind(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		has, asked, want int64 // has -1: there is no disk
	}{
		"larger":          {mib, 3 * mib, 3 * mib},
		"as large":        {mib, mib, mib},
		"smaller":         {3 * mib, mib, 3 * mib},
		"no size":         {mib, 0, mib},
		"nothing to grow": {-1, mib, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, taskPath, reportPath := filepath.Join(dir, "disk.img"), filepath.Join(dir, "task.json"), filepath.Join(dir, "report")
			if c.has >= 0 {
				if err := os.WriteFile(path, disk(int(c.has)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			k := task.Task{Version: task.Version, Target: task.Target{Path: path, Content: task.Disk, Size: c.asked}}
			doc, err := json.Marshal(k)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(taskPath, doc, 0o600); err != nil {
				t.Fatal(err)
			}
			if code := run(t.Context(), []string{"bind", "--task", taskPath, "--report", reportPath}, io.Discard, io.Discard); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if r := report(t, reportPath); r.Outcome != task.Done || r.Virtual != c.want {
				t.Errorf("report %+v, want a disk of %d", r, c.want)
			}
			if c.has < 0 {
				return
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(got)) != c.want || string(got[:c.has]) != string(disk(int(c.has))) {
				t.Errorf("the disk has %d bytes or others than before, want %d", len(got), c.want)
			}
		})
	}
	reportPath := filepath.Join(t.TempDir(), "report")
	code := run(t.Context(), []string{"bind", "--task", "/nowhere", "--report", reportPath}, io.Discard, io.Discard)
	if r := report(t, reportPath); code == 0 || r.Reason != task.BadTask {
		t.Errorf("without a task: %d, %+v", code, r)
	}
}
