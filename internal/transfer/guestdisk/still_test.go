package guestdisk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/guestdisk"
)

// TestWhatIsNoDisk: what a user has put in the place of a disk is neither followed nor waited for, and no backup is made of it.
func TestWhatIsNoDisk(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("secret", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		put    func(path string) error
		reason task.Reason
	}{
		"a link":      {func(p string) error { return os.Symlink(secret, p) }, task.SourceUnreachable},
		"a pipe":      {func(p string) error { return unix.Mkfifo(p, 0o600) }, task.SourceUnreachable},
		"a directory": {func(p string) error { return os.Mkdir(p, 0o700) }, task.SourceUnreachable},
		"empty":       {func(p string) error { return os.WriteFile(p, nil, 0o600) }, task.SourceUnreachable},
		"nothing":     {func(string) error { return nil }, task.SourceNotFound},
		"a terminal":  {func(p string) error { return os.Symlink("/dev/zero", p) }, task.SourceUnreachable},
	} {
		path, set := filepath.Join(t.TempDir(), task.DiskFile), filepath.Join(t.TempDir(), "web")
		if err := row.put(path); err != nil {
			t.Fatal(err)
		}
		r := guestdisk.NewJob(task.BackUp{Version: task.Version, Set: set, Checkpoint: "b1", Disks: []string{"root"}, Files: map[string]string{"root": path}}).Run(t.Context())
		if r.Reason != row.reason || r.Backup != nil {
			t.Errorf("%s: %+v", name, r)
		}
		if left, err := filepath.Glob(filepath.Join(set, "*")); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}
