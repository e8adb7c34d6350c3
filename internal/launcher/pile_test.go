package launcher

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	hub "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	nothing "github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	to "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source/registry"
)

// pulledImage is an image of layers with these files, from a registry of the test.
func pulledImage(t *testing.T, layers ...[]string) *registry.Image {
	t.Helper()
	s := httptest.NewServer(hub.New(hub.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	img, err := mutate.ConfigFile(nothing.Image, &v1.ConfigFile{Architecture: guestArch, OS: "linux"})
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range layers {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, f := range files {
			if err := w.WriteHeader(&tar.Header{Name: f, Mode: 0o644, Size: int64(len(f))}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, f); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
		if err == nil {
			img, err = mutate.AppendLayers(img, l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ref := strings.TrimPrefix(s.URL, "http://") + "/team/image:1"
	at, err := name.ParseReference(ref)
	if err == nil {
		err = to.Write(at, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := registry.Pull(t.Context(), task.Registry{URL: "docker://" + ref}, guestArch, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return out
}

// TestPile: a file for each layer, each over the one before, and one with the room on top; the disk is as large as the machine says.
func TestPile(t *testing.T) {
	dir := t.TempDir()
	b, from, err := pile(t.Context(), pulledImage(t, []string{"a"}, []string{".wh..wh..opq", "b"}, []string{"c"}), dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var chain []string
	for at := &b; at != nil; at = at.Master {
		chain = append(chain, filepath.Base(at.Path))
		if at.Format != "qcow2" || filepath.Dir(at.Path) != dir {
			t.Errorf("%s is %s", at.Path, at.Format)
		}
	}
	if diff := cmp.Diff([]string{"top.qcow2", "002.qcow2", "001.qcow2", "000.qcow2"}, chain); diff != "" {
		t.Errorf("the stack (-want +got):\n%s", diff)
	}
	if from != 1 {
		t.Errorf("the lowest layer that counts is %d: the second takes away all below it", from)
	}
	if size, err := virtualSize(b.Path); err != nil || size < imageRoom || size > imageRoom+64<<20 {
		t.Errorf("the disk has %d bytes, %v", size, err)
	}
	size := resource.MustParse("1Gi")
	b, _, err = pile(t.Context(), pulledImage(t, []string{"a"}), t.TempDir(), &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Size: &size}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := virtualSize(b.Path); err != nil || got != size.Value() {
		t.Errorf("a disk of 1Gi has %d bytes, %v", got, err)
	}
	size = resource.MustParse("2Mi")
	if _, _, err := pile(t.Context(), pulledImage(t, []string{"a"}), t.TempDir(), &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Size: &size}, nil); err == nil || !strings.Contains(err.Error(), "leaves no room") {
		t.Errorf("a disk that is smaller than its layers: %v", err)
	}
}

// TestDiskInside: an image without a program is a container disk, or nothing that can be run.
func TestDiskInside(t *testing.T) {
	dir := t.TempDir()
	b, err := diskInside(t.Context(), pulledImage(t, []string{"etc/x"}, []string{"disk/root.img"}), dir)
	if err != nil || b.Format != "raw" || b.Orders != "" {
		t.Fatalf("%+v, %v", b, err)
	}
	if text, err := os.ReadFile(b.Path); err != nil || string(text) != "disk/root.img" {
		t.Errorf("the disk is %q, %v", text, err)
	}
	_, err = diskInside(t.Context(), pulledImage(t, []string{"etc/x"}), t.TempDir())
	if err == nil || !strings.HasSuffix(err.Error(), "has no entrypoint, no command, and no disk under /disk/: say what to run with command") {
		t.Errorf("an image with nothing to run: %v", err)
	}
}
