package open

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
)

// TestEachKind sends each kind of source to a server that has the bytes, or knows nothing.
func TestEachKind(t *testing.T) {
	content := sourcetest.Content(1, 1000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/bucket/disk.img" {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Unix(1_600_000_000, 0), strings.NewReader(string(content)))
	}))
	defer s.Close()
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	url := s.URL + "/bucket/disk.img"
	for name, in := range map[string]task.Source{
		"http": {HTTP: &task.HTTP{URL: url}}, "s3": {S3: &task.S3{URL: url}}, "gcs": {GCS: &task.GCS{URL: url}},
		"local": {Local: &task.Local{Path: path}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Open(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			sourcetest.Same(t, b, 10, 100, content[10:110])
		})
	}
	_, err := Open(t.Context(), task.Source{Registry: &task.Registry{URL: "docker://" + strings.TrimPrefix(s.URL, "http://") + "/a/b"}})
	sourcetest.Fails(t, err, task.SourceNotFound)
	_, err = Open(t.Context(), task.Source{Peer: &task.Peer{URL: "https://host", TLSDir: t.TempDir()}})
	sourcetest.Fails(t, err, task.SourceUntrusted)
}

// TestNoKindIsForgotten: every source that a task can have is opened, but for the two that have nothing to open, and one with an address
// is found by it.
func TestNoKindIsForgotten(t *testing.T) {
	all := reflect.TypeFor[task.Source]()
	for i := range all.NumField() {
		var in task.Source
		name, field := all.Field(i).Name, reflect.ValueOf(&in).Elem().Field(i)
		field.Set(reflect.New(field.Type().Elem()))
		opened := slices.ContainsFunc(kinds(), func(k kind) bool { return k.set(in) })
		if opened == slices.Contains([]string{"Blank", "Upload"}, name) {
			t.Errorf("is %s opened: %v", name, opened)
		}
	}
	for _, k := range kinds() {
		for _, scheme := range k.schemes {
			s, ok := At(scheme+"://server/disk", task.Access{CADir: "/ca"})
			if !ok || !k.set(s) || count(s) != 1 {
				t.Errorf("%s: %+v", scheme, s)
			}
		}
	}
	if _, ok := At("ftp://server/disk", task.Access{}); ok {
		t.Error("ftp is a source")
	}
}

func TestSourcesThatAreNotOpened(t *testing.T) {
	for name, in := range map[string]task.Source{
		"none": {}, "two": {HTTP: &task.HTTP{}, S3: &task.S3{}}, "blank": {Blank: &task.Blank{}}, "upload": {Upload: &task.Upload{}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), in)
			sourcetest.Fails(t, err, task.BadTask)
		})
	}
}
