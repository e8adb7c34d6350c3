package file

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/transfer/source"
)

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) source.Blob {
	t.Helper()
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestConformance(t *testing.T) {
	content := sourcetest.Content(1, 1_000_003)
	path := filepath.Join(t.TempDir(), "disk.img")
	put(t, path, content)
	sourcetest.Read(t, content, func(t *testing.T) source.Blob { return get(t, path) })
}

func TestFileThatIsNotThere(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "none"))
	sourcetest.Fails(t, err, task.SourceNotFound)
}

func TestFileThatIsADirectory(t *testing.T) {
	_, err := Open(t.TempDir())
	sourcetest.Fails(t, err, task.BadTask)
}

func TestFileThatChanges(t *testing.T) {
	for name, change := range map[string]func(*testing.T, string){
		"shorter": func(t *testing.T, path string) {
			if err := os.Truncate(path, 500); err != nil {
				t.Fatal(err)
			}
		},
		"rewritten": func(t *testing.T, path string) {
			put(t, path, sourcetest.Content(2, 1000))
			if err := os.Chtimes(path, time.Time{}, time.Unix(1_700_000_000, 1)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "disk.img")
			put(t, path, sourcetest.Content(1, 1000))
			b := get(t, path)
			r, err := b.Open(t.Context(), 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			change(t, path)
			_, err = sourcetest.Get(t.Context(), b, 0, 10)
			sourcetest.Fails(t, err, task.SourceChanged)
			for err = nil; err == nil; {
				_, err = r.Read(make([]byte, 100))
			}
			want := task.SourceChanged
			if name == "shorter" {
				want = task.SourceTruncated
			}
			sourcetest.Fails(t, err, want)
		})
	}
}

func TestDataOfASparseFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 64 << 20
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{5 << 20, 40 << 20} {
		if _, err := f.WriteAt([]byte("data"), at); err != nil {
			t.Fatal(err)
		}
	}
	sparse, ok := get(t, path).(source.Sparse)
	if !ok {
		t.Fatal("a file is not sparse")
	}
	for _, span := range [][2]int64{{0, size}, {0, 6 << 20}, {5<<20 + 1, 41 << 20}, {7, 7}, {50 << 20, size}} {
		got, err := sparse.Data(t.Context(), span[0], span[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := peerproto.Extents(got).Check(span[0], span[1]); err != nil {
			t.Errorf("data in %v: %v", span, err)
		}
		for _, at := range []int64{5 << 20, 40 << 20} {
			if at < span[0] || at >= span[1] {
				continue
			}
			if !slices.ContainsFunc(got, func(x [2]int64) bool { return x[0] <= at && at < x[0]+x[1] }) {
				t.Errorf("data in %v: %v does not have the bytes at %d", span, got, at)
			}
		}
	}
	for _, span := range [][2]int64{{-1, 5}, {5, size + 1}, {9, 8}} {
		if _, err := sparse.Data(t.Context(), span[0], span[1]); err == nil {
			t.Errorf("data in %v: no error", span)
		}
	}
}
