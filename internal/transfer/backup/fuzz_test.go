package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// anything answers for every file of a set with the same bytes.
type anything struct{ data []byte }

func (a anything) Info() source.Info {
	return source.Info{Name: "file", Size: int64(len(a.data)), Ranged: true}
}

func (a anything) Open(_ context.Context, off, n int64) (io.ReadCloser, error) {
	n, err := a.Info().Span(off, n)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(a.data[off : off+n])), nil
}

func (anything) Close() error { return nil }

// FuzzManifest: a manifest is refused with a reason, or makes sense: it can be written and read again, and the files that are opened because of it lie in the set.
func FuzzManifest(f *testing.F) {
	const sum = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	f.Add([]byte(`{"version":2,"checkpoint":"b1","created":"2026-11-18T20:00:00Z","disks":[{"name":"root","size":1024,"granularity":65536,"file":"root.qcow2","bytes":65536,"sums":"root.sums","piece":1048576,"digest":"`+sum+`"}],"machine":{}}`), "b1", "root", []byte("x"))
	f.Add([]byte(`{"version":2,"checkpoint":"b2","created":"2026-11-18T20:00:00Z","parent":{"checkpoint":"b1","manifest":"`+sum+`"},"disks":[{"name":"root","size":512,"increment":true,"granularity":512,"file":"a","bytes":1,"sums":"b","piece":65536,"digest":"`+sum+`"}]}`), "b2", "root", []byte{})
	f.Add([]byte(`{"version":2}`), "../b1", "a/b", []byte{})
	f.Fuzz(func(t *testing.T, text []byte, checkpoint, disk string, other []byte) {
		reason := func(err error) {
			var known *task.Error
			if !errors.As(err, &known) {
				t.Fatalf("refused without a reason: %v", err)
			}
		}
		m, err := Parse(text)
		if err != nil {
			reason(err)
		} else if again, err := json.Marshal(m); err != nil {
			t.Fatal(err)
		} else if _, err := Parse(again); err != nil {
			t.Fatalf("it is not read again: %v\n%s", err, again)
		}
		files := func(_ context.Context, path string) (source.Blob, error) {
			if !filepath.IsLocal(path) || strings.Count(path, "/") != 1 || strings.HasPrefix(path, ".") {
				t.Fatalf("%q is opened", path)
			}
			if filepath.Base(path) == ManifestFile {
				return anything{text}, nil
			}
			return anything{other}, nil
		}
		c, err := Open(t.Context(), files, Which{Checkpoint: checkpoint, Disk: disk})
		if err != nil {
			reason(err)
			return
		}
		_ = c.Close() // it is in memory
	})
}
