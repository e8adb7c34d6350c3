package registry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
	"github.com/berth-vm/berth/internal/transfer/source/http"
)

// packed returns an image whose layers are compressed, as those of build tools are.
func packed(t *testing.T, conf *v1.ConfigFile, layers ...[]byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, conf)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
		if err == nil {
			img, err = mutate.AppendLayers(img, l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return img
}

func linux(arch string, conf v1.Config) *v1.ConfigFile {
	return &v1.ConfigFile{Architecture: arch, OS: "linux", Config: conf}
}

func pulled(t *testing.T, img v1.Image, dial http.Dial) (*Image, error) {
	t.Helper()
	h := newHub()
	h.open = true
	h.push(t, "disks/x:1", img)
	i, err := pull(t.Context(), task.Registry{URL: serve(t, h) + "/disks/x:1"}, "amd64", sourcetest.Patience, dial)
	if err == nil {
		t.Cleanup(func() { _ = i.Close() })
	}
	return i, err
}

// TestPull: an image with what it says about its program, and its layers as archives, the lowest first.
func TestPull(t *testing.T) {
	low, high := layer(t, entry{name: "a", body: []byte("low")}), layer(t, entry{name: "b", body: []byte("high")})
	dialed := 0
	i, err := pulled(t, packed(t, linux("amd64", v1.Config{Entrypoint: []string{"/run"}, User: "app"}), low, high), func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed++
		return (&net.Dialer{}).DialContext(ctx, network, address)
	})
	if err != nil {
		t.Fatal(err)
	}
	if i.Layers != 2 || i.Config.User != "app" || !cmp.Equal(i.Config.Entrypoint, []string{"/run"}) || dialed == 0 {
		t.Errorf("the image is %+v after %d connections of the caller's", i, dialed)
	}
	for n, want := range [][]byte{low, high} {
		var got []byte
		err := i.Read(t.Context(), n, 1<<20, func(r io.Reader) (err error) {
			got, err = io.ReadAll(r)
			return err
		})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("layer %d has %d bytes, want %d: %v", n, len(got), len(want), err)
		}
	}
	if err := i.Read(t.Context(), 0, 100, func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }); !task.Is(err, task.DoesNotFit) {
		t.Errorf("a layer that is larger than allowed: %v", err)
	}
	mine := errors.New("mine")
	if err := i.Read(t.Context(), 0, 1<<20, func(io.Reader) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("the caller's own error: %v", err)
	}
	i.image.config.RootFS.DiffIDs[1] = i.image.config.RootFS.DiffIDs[0]
	if err := i.Read(t.Context(), 1, 1<<20, func(io.Reader) error { return nil }); !task.Is(err, task.ChecksumMismatch) {
		t.Errorf("a layer that is another than its image says: %v", err)
	}
}

// TestPullRefuses: images that cannot become machines are refused in one line, which gives no advice for DataVolumes.
func TestPullRefuses(t *testing.T) {
	text := layer(t, entry{name: "a"})
	for name, c := range map[string]struct {
		img  *v1.ConfigFile
		want task.Reason
		text string
	}{
		"another architecture": {linux("arm64", v1.Config{}), task.SourceNotFound, "no image for the architecture amd64: it is one for arm64"},
		"another system":       {&v1.ConfigFile{Architecture: "amd64", OS: "windows"}, task.UnsupportedImage, "is an image for windows"},
	} {
		_, err := pulled(t, packed(t, c.img, text), nil)
		if !task.Is(err, c.want) || !strings.HasSuffix(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPullDisk: the disk of a container disk is found as an import finds it.
func TestPullDisk(t *testing.T) {
	disk := layer(t, entry{name: "etc/x", body: []byte("x")}, entry{name: "disk/a.img", body: []byte("disk")}, entry{name: "z", body: []byte("z")})
	for name, c := range map[string]struct {
		layers [][]byte
		want   string
	}{
		"one":              {[][]byte{disk}, "disk"},
		"below another":    {[][]byte{disk, layer(t, entry{name: "b", body: []byte("b")})}, "disk"},
		"taken away":       {[][]byte{disk, layer(t, entry{name: ".wh.disk"})}, ""},
		"without a disk":   {[][]byte{layer(t, entry{name: "b"})}, ""},
		"with a later one": {[][]byte{disk, layer(t, entry{name: "disk/b.img", body: []byte("later")})}, "later"},
	} {
		i, err := pulled(t, packed(t, linux("amd64", v1.Config{}), c.layers...), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		found, err := i.Disk(t.Context(), &got, 1<<20)
		if err != nil || found != (c.want != "") || got.String() != c.want {
			t.Errorf("%s: %t %q, %v", name, found, got.String(), err)
		}
	}
	i, err := pulled(t, packed(t, linux("amd64", v1.Config{}), disk), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Disk(t.Context(), io.Discard, 3); !task.Is(err, task.DoesNotFit) {
		t.Errorf("a disk that is larger than allowed: %v", err)
	}
}
