package directory

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
)

func TestDirectoryStaysInside(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "volume")
	must(t, os.Mkdir(dir, 0o755))
	d, err := Open(dir, nil)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	file := func(name string) error {
		return d.File(name, 0o644, time.Time{}, 4, strings.NewReader("text"))
	}
	must(t, d.Symlink("up", ".."))
	must(t, d.Symlink("abs", outside))
	must(t, d.Mkdir("deep/dir", 0o755))
	must(t, d.Symlink("deep/dir/back", "../../.."))
	for _, name := range []string{"../escape", "deep/../../escape", "up/escape", "abs/escape", "deep/dir/back/escape",
		"..", "x\x00y", unpackingName} {
		var e *task.Error
		if err := file(name); !errors.As(err, &e) || e.Reason != task.UnsafeImage {
			t.Errorf("file %q: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"link to outside":       d.Link("l1", "../escape"),
		"link through symlink":  d.Link("l2", "up/escape"),
		"link to a symlink":     d.Link("l3", "abs"),
		"directory via symlink": d.Mkdir("abs/escape", 0o755),
		"symlink via symlink":   d.Symlink("up/escape", "x"),
	} {
		var e *task.Error
		if !errors.As(err, &e) || e.Reason != task.UnsafeImage {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, file("/absolute/is/relative"))
	must(t, file("up")) // takes the link's place, does not follow it
	must(t, d.Link("hard", "absolute/is/relative"))
	must(t, d.Finish())
	if names, _ := os.ReadDir(outside); len(names) != 1 {
		t.Errorf("made outside of the directory: %v", names)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "hard")); err != nil || string(b) != "text" {
		t.Errorf("hard link: %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, unpackingName)); err == nil {
		t.Error("the mark is still there")
	}
}

func TestDirectoryRefusesWhatDoesNotFit(t *testing.T) {
	d, err := Open(t.TempDir(), nil)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	var e *task.Error
	if err := d.File("big", 0o644, time.Time{}, 1<<60, strings.NewReader("")); !errors.As(err, &e) || e.Reason != task.DoesNotFit {
		t.Errorf("a file of an exbibyte: %v", err)
	}
	d.files = 1
	must(t, d.Mkdir("a", 0o755))
	if err := d.Mkdir("b", 0o755); !errors.As(err, &e) || e.Reason != task.DoesNotFit {
		t.Errorf("more entries than inodes: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
