package disktest

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Tarball makes an archive of the entries in order.
func Tarball(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := h.PAXRecords["BERTH.content"]
		h.PAXRecords = nil
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Entry is an entry of a tarball: a file with this content, or a link that leads there.
func Entry(kind byte, name, content string) tar.Header {
	h := tar.Header{Typeflag: kind, Name: name}
	if kind == tar.TypeReg {
		h.PAXRecords = map[string]string{"BERTH.content": content}
	} else {
		h.Linkname = content
	}
	return h
}

// Push puts layers into a registry and returns the image's URL.
func Push(t *testing.T, layers ...[]byte) string {
	t.Helper()
	return PushAnnotated(t, nil, layers...)
}

// PushAnnotated is Push with annotations of each layer in the manifest.
func PushAnnotated(t *testing.T, said map[string]string, layers ...[]byte) string {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	img := empty.Image
	for _, l := range layers {
		var err error
		if img, err = mutate.Append(img, mutate.Addendum{Layer: static.NewLayer(l, types.DockerLayer), Annotations: said}); err != nil {
			t.Fatal(err)
		}
	}
	host := strings.TrimPrefix(s.URL, "http://")
	ref, err := name.ParseReference(host + "/disks/one:latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return "docker://" + host + "/disks/one:latest"
}
