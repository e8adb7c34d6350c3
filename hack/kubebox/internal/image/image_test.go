package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

// archive packs an image as an OCI archive, after change has had its way with the unpacked layout.
func archive(t *testing.T, annotations map[string]string, change func(dir string)) (io.Reader, v1.Image) {
	t.Helper()
	img, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	store, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := layout.Path(store.dir).AppendImage(img, layout.WithAnnotations(annotations)); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(dir)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out, img
}

func newStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestArchiveIsLoadedUnderItsFullName(t *testing.T) {
	for _, test := range []struct {
		annotations map[string]string
		want        string
	}{
		{map[string]string{nameAnnotation: "quay.io/berth/worker:dev"}, "quay.io/berth/worker:dev"},
		{map[string]string{nameAnnotation: "busybox:1"}, "docker.io/library/busybox:1"},
		{map[string]string{nameAnnotation: "dev", containerdAnnotation: "quay.io/berth/worker:dev"}, "quay.io/berth/worker:dev"},
		{map[string]string{nameAnnotation: "quay.io/berth/worker"}, "quay.io/berth/worker:latest"},
	} {
		s := newStore(t)
		r, _ := archive(t, test.annotations, nil)
		names, err := s.AddArchive(r)
		if err != nil {
			t.Errorf("%v: %v", test.annotations, err)
			continue
		}
		if diff := cmp.Diff([]string{test.want}, names); diff != "" {
			t.Errorf("%v: %s", test.annotations, diff)
		}
	}
}

func TestBadArchiveLeavesTheStoreAsItWas(t *testing.T) {
	name := map[string]string{nameAnnotation: "quay.io/berth/worker:dev"}
	oneBlob := func(dir string) string {
		blobs, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
		if err != nil || len(blobs) == 0 {
			t.Fatal("no blobs", err)
		}
		return blobs[0]
	}
	for what, make := range map[string]func() io.Reader{
		"digest is": func() io.Reader {
			r, _ := archive(t, name, func(d string) { _ = os.WriteFile(oneBlob(d), []byte("x"), 0o600) })
			return r
		},
		"missing":            func() io.Reader { r, _ := archive(t, name, func(d string) { _ = os.Remove(oneBlob(d)) }); return r },
		"name it in full":    func() io.Reader { r, _ := archive(t, map[string]string{nameAnnotation: "dev"}, nil); return r },
		"not an OCI archive": func() io.Reader { var b bytes.Buffer; _ = tar.NewWriter(&b).Close(); return &b },
		"uncompressed tar":   func() io.Reader { return strings.NewReader(strings.Repeat("no tar ", 1000)) },
	} {
		s := newStore(t)
		if _, err := s.AddArchive(make()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want an error with %q", err, what)
		}
		if names, err := s.Names(); err != nil || len(names) != 0 {
			t.Errorf("%s: the store holds %v, %v", what, names, err)
		}
	}
}

func TestNewerImageTakesTheNameAndTheRoomOfTheOlder(t *testing.T) {
	s := newStore(t)
	for range 3 {
		r, _ := archive(t, map[string]string{nameAnnotation: "quay.io/berth/worker:dev"}, nil)
		if _, err := s.AddArchive(r); err != nil {
			t.Fatal(err)
		}
	}
	names, err := s.Names()
	if err != nil || len(names) != 1 {
		t.Errorf("names are %v, %v", names, err)
	}
	blobs, err := os.ReadDir(filepath.Join(s.dir, "blobs", "sha256"))
	if err != nil || len(blobs) != 4 { // manifest, configuration, two layers
		t.Errorf("%d blobs are left, %v, want 4", len(blobs), err)
	}
}

func TestRegistryServesWhatWasLoaded(t *testing.T) {
	s := newStore(t)
	r, img := archive(t, map[string]string{nameAnnotation: "quay.io/berth/worker:dev"}, nil)
	if _, err := s.AddArchive(r); err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	for path, want := range map[string]int{
		"/v2/":                           http.StatusOK,
		"/v2/berth/worker/manifests/dev": http.StatusOK,
		"/v2/berth/worker/manifests/dev?ns=quay.io":      http.StatusOK,
		"/v2/berth/worker/manifests/dev?ns=docker.io":    http.StatusNotFound,
		"/v2/berth/worker/manifests/other":               http.StatusNotFound,
		"/v2/berth/worker/manifests/" + digest.String():  http.StatusOK,
		"/v2/berth/worker/blobs/" + digest.String():      http.StatusOK,
		"/v2/berth/worker/blobs/sha256:../../index.json": http.StatusNotFound,
		"/else": http.StatusNotFound,
	} {
		response, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != want {
			t.Errorf("%s: got %s, %v, want %d", path, response.Status, err, want)
		}
		if strings.Contains(path, "manifests") && want == http.StatusOK && !bytes.Equal(body, raw) {
			t.Errorf("%s: got another manifest than was loaded", path)
		}
	}
	response, err := http.Post(server.URL+"/v2/berth/worker/blobs/uploads/", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a push is answered with %s", response.Status)
	}
}

func TestBuiltImageHasBusyboxAndIsReproducible(t *testing.T) {
	program := filepath.Join(t.TempDir(), "busybox")
	script := fmt.Sprintf("#!/bin/sh\nprintf '%s'\n", "busybox\\nls\\nsh\\n")
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	digests := map[string]bool{}
	for range 2 {
		img, err := Busybox(program)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests[digest.String()] = true
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"sh"}, config.Config.Cmd); diff != "" {
			t.Error(diff)
		}
		raw, err := img.RawManifest()
		if err != nil || !json.Valid(raw) {
			t.Errorf("manifest %s: %v", raw, err)
		}
	}
	if len(digests) != 1 {
		t.Errorf("the same program gave images %v", digests)
	}
}

func TestSameRepository(t *testing.T) {
	names := []string{"quay.io/berth/worker:dev"}
	for digest, want := range map[string]bool{"quay.io/berth/worker@sha256:1": true, "quay.io/berth/work@sha256:1": false, "docker.io/berth/worker@sha256:1": false} {
		if got := sameRepository(digest, names); got != want {
			t.Errorf("%s: %t, want %t", digest, got, want)
		}
	}
}
