package receive

import (
	"archive/tar"
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/upload/client"
	"github.com/berth-vm/berth/internal/upload/tus"
)

// TestArchive: a volume that is for an archive takes one, in one request or by tus, and nothing else.
func TestArchive(t *testing.T) {
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	_ = w.WriteHeader(&tar.Header{Name: "etc/hello", Mode: 0o644, Size: 5, Typeflag: tar.TypeReg})
	_, _ = w.Write([]byte("world"))
	_ = w.Close()
	for name, send := range map[string]func(*testing.T, *worker){
		"POST": func(t *testing.T, w *worker) {
			w.status(t, 200, http.MethodPost, "/v1beta1/upload-async", bytes.NewReader(files.Bytes()))
		},
		"tus": func(t *testing.T, w *worker) {
			path := filepath.Join(t.TempDir(), "files.tar")
			if err := os.WriteFile(path, files.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := client.Send(t.Context(), path, options(w)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := serve(t, dir, func(k *task.Task) { k.Target.Content = task.Archive })
			w.status(t, 400, http.MethodPost, "/", bytes.NewReader(noise(21, 1<<20)))
			bad := create(t, w, 1<<10, nil)
			w.status(t, 400, http.MethodPatch, bad, bytes.NewReader(noise(22, 1<<10)), "Content-Type", tus.Plain, tus.Offset, "0")
			send(t, w)
			w.ends(t, task.Completed)
			if got, err := os.ReadFile(filepath.Join(dir, "etc", "hello")); err != nil || string(got) != "world" {
				t.Errorf("the file holds %q: %v", got, err)
			}
		})
	}
}
