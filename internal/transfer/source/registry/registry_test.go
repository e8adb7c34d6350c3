package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/sourcetest"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// entry is a file of a layer; without a type it is a plain one.
type entry struct {
	name string
	body []byte
	kind byte
}

func layer(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.body)), Typeflag: e.kind}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if e.kind == tar.TypeSymlink || e.kind == tar.TypeLink {
			h.Linkname = "/etc/shadow"
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gz(t testing.TB, p []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zst(t testing.TB, p []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(p, nil)
}

// build makes an image of layers, the lowest first.
func build(t testing.TB, conf v1.Config, layers ...[]byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: "amd64", OS: "linux", Config: conf})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if img, err = mutate.AppendLayers(img, static.NewLayer(l, types.OCILayer)); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// hub is a registry that gives tokens to user:secret.
type hub struct {
	nethttp.Handler
	open bool
}

func newHub() *hub { return &hub{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))} }

func (h *hub) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	switch {
	case h.open:
	case r.URL.Path == "/token":
		user, pass, given := r.BasicAuth()
		if given && (user != "user" || pass != "secret") {
			nethttp.Error(w, "no", nethttp.StatusUnauthorized)
			return
		}
		token := "anonymous"
		if given {
			token = "let-me-in"
		}
		fmt.Fprintf(w, `{"token":%q,"expires_in":60}`, token)
		return
	case r.Header.Get("Authorization") != "Bearer let-me-in":
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="hub"`, r.Host))
		nethttp.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, nethttp.StatusUnauthorized)
		return
	}
	h.Handler.ServeHTTP(w, r)
}

// push puts an image where a test will look for it; the host is not part of what a registry keeps.
func (h *hub) push(t testing.TB, tag string, img v1.Image) {
	t.Helper()
	s := httptest.NewServer(h.Handler)
	defer s.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(s.URL, "http://") + "/" + tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := ggcr.Write(ref, img); err != nil {
		t.Fatal(err)
	}
}

func secret(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func serve(t *testing.T, h nethttp.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return "docker://" + strings.TrimPrefix(s.URL, "http://")
}

// openImage opens the disk of an image that a registry serves.
func openImage(t *testing.T, img v1.Image) (source.Blob, error) {
	t.Helper()
	h := newHub()
	h.open = true
	h.push(t, "vm/disk:v1", img)
	return open(t.Context(), task.Registry{URL: serve(t, h) + "/vm/disk:v1"}, sourcetest.Patience)
}

// readDisk reads a disk as the engine does: the layer from its start, decompressed, the member, the rest, the digest.
func readDisk(ctx context.Context, b source.Blob) ([]byte, error) {
	m := b.Info().Member
	r, err := b.Open(ctx, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	sum := sha256.New()
	stored, err := io.ReadAll(io.TeeReader(r, sum))
	if err != nil {
		return nil, err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != m.Digest {
		return nil, fmt.Errorf("digest %s, want %s", got, m.Digest)
	}
	plain, err := decode.NewReader(decode.Detect(stored), bytes.NewReader(stored), decode.Options{})
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	if _, err := io.CopyN(io.Discard, plain, m.Offset); err != nil {
		return nil, err
	}
	disk, err := io.ReadAll(io.LimitReader(plain, m.Size))
	return disk, errors.Join(err, m.Rest(plain))
}

func TestConformance(t *testing.T) {
	sourcetest.Serve(t, func(*testing.T) sourcetest.Harness {
		h := newHub()
		get := func(tag, pass string) func(*testing.T, string) (source.Blob, error) {
			return func(t *testing.T, base string) (source.Blob, error) {
				t.Helper()
				in := task.Registry{URL: "docker://" + strings.TrimPrefix(base, "http://") + "/vm/disk:" + tag}
				in.CredentialsDir = secret(t, map[string]string{"accessKeyId": "user", "secretKey": pass})
				b, err := open(t.Context(), in, sourcetest.Patience)
				if err != nil {
					return nil, err
				}
				return source.Section(b, b.Info().Member.Offset, b.Info().Member.Size, b.Info().Name+b.Info().Version)
			}
		}
		return sourcetest.Harness{
			Server: h, Fixed: true,
			Put: func(t *testing.T, content []byte) {
				h.push(t, "vm/disk:v1", build(t, v1.Config{}, layer(t, entry{name: "disk/disk.img", body: content})))
			},
			Data: func(r *nethttp.Request) bool {
				return strings.Contains(r.URL.Path, "/blobs/") && r.Header.Get("Range") != ""
			},
			Open: get("v1", "secret"), OpenWrong: get("v1", "guess"), OpenMissing: get("none", "secret"),
		}
	})
}

func TestDiskIsFound(t *testing.T) {
	disk := sourcetest.Content(1, 100_001)
	other := entry{name: "etc/passwd", body: []byte("x")}
	for name, layers := range map[string][][]byte{
		"plain layer":      {layer(t, entry{name: "disk/disk.img", body: disk})},
		"gz layer":         {gz(t, layer(t, other, entry{name: "./disk/disk.img", body: disk}, other))},
		"zstd layer":       {zst(t, layer(t, entry{name: "/disk/", kind: tar.TypeDir}, entry{name: "/disk/a", body: disk}))},
		"below others":     {gz(t, layer(t, entry{name: "disk/a", body: disk})), layer(t, other), zst(t, layer(t, other))},
		"topmost wins":     {layer(t, entry{name: "disk/a", body: []byte("old")}), layer(t, entry{name: "disk/a", body: disk})},
		"in a directory":   {layer(t, entry{name: "disk/sub/a", body: disk})},
		"one taken away":   {layer(t, entry{name: "disk/a", body: disk}, entry{name: "disk/b", body: disk}), layer(t, entry{name: "disk/.wh.b"})},
		"links elsewhere":  {layer(t, entry{name: "bin", kind: tar.TypeSymlink}, entry{name: "disk/a", body: disk})},
		"long name":        {layer(t, entry{name: "disk/" + strings.Repeat("x", 300), body: disk})},
		"empty top layer":  {layer(t, entry{name: "disk/a", body: disk}), layer(t)},
		"own whiteout":     {layer(t, entry{name: "disk/.wh.a"}, entry{name: "disk/a", body: disk})},
		"replaced at once": {layer(t, entry{name: "disk/b", body: []byte("old")}), layer(t, entry{name: "disk/" + opaque}, entry{name: "disk/a", body: disk})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := openImage(t, build(t, v1.Config{}, layers...))
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			got, err := readDisk(t.Context(), b)
			if err != nil || !bytes.Equal(got, disk) {
				t.Errorf("got %d bytes of %s, %v", len(got), b.Info().Member.Name, err)
			}
			if v := b.Info().Version; !strings.Contains(v, "image:sha256:") || !strings.Contains(v, "layer:sha256:") {
				t.Errorf("version is %q", v)
			}
		})
	}
}

func TestImagesThatAreRefused(t *testing.T) {
	disk := entry{name: "disk/a", body: []byte("disk")}
	cut := layer(t, disk)[:700]
	for name, c := range map[string]struct {
		want   task.Reason
		text   string
		layers [][]byte
	}{
		"no disk":              {task.BadImage, "no file under /disk/", [][]byte{layer(t, entry{name: "etc/passwd"})}},
		"disk beside":          {task.BadImage, "no file under /disk/", [][]byte{layer(t, entry{name: "diskette/a"})}},
		"two disks":            {task.BadImage, "/disk/a, /disk/b", [][]byte{layer(t, disk, entry{name: "disk/b"})}},
		"taken away":           {task.BadImage, "no file", [][]byte{layer(t, disk), layer(t, entry{name: "disk/.wh.a"})}},
		"directory taken away": {task.BadImage, "no file", [][]byte{layer(t, disk), layer(t, entry{name: ".wh.disk"})}},
		"opaque directory":     {task.BadImage, "no file", [][]byte{layer(t, disk), layer(t, entry{name: "disk/" + opaque})}},
		"opaque root":          {task.BadImage, "no file", [][]byte{layer(t, disk), layer(t, entry{name: opaque})}},
		"nested taken away": {task.BadImage, "no file", [][]byte{layer(t, entry{name: "disk/s/a"}),
			layer(t, entry{name: "disk/.wh.s"})}},
		"symlink":         {task.UnsafeImage, "symbolic link", [][]byte{layer(t, entry{name: "disk/a", kind: tar.TypeSymlink})}},
		"hard link":       {task.UnsafeImage, "hard link", [][]byte{layer(t, entry{name: "disk/a", kind: tar.TypeLink})}},
		"device":          {task.UnsafeImage, "device", [][]byte{layer(t, entry{name: "disk/a", kind: tar.TypeBlock})}},
		"linked dir":      {task.UnsafeImage, "symbolic link", [][]byte{layer(t, entry{name: "disk", kind: tar.TypeSymlink}, disk)}},
		"link after disk": {task.UnsafeImage, "symbolic link", [][]byte{layer(t, disk, entry{name: "disk/b", kind: tar.TypeSymlink})}},
		"no tar":          {task.BadImage, "tar", [][]byte{bytes.Repeat([]byte("no tar"), 1000)}},
		"cut off":         {task.BadImage, "tar", [][]byte{cut}},
		"bad gzip":        {task.BadImage, "", [][]byte{append([]byte{0x1f, 0x8b, 8, 0}, make([]byte, 100)...)}},
		"cut off gzip":    {task.BadImage, "", [][]byte{gz(t, layer(t, entry{name: "disk/a", body: sourcetest.Content(1, 5000)}))[:4000]}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := openImage(t, build(t, v1.Config{}, c.layers...))
			if err == nil {
				defer b.Close()
				_, err = readDisk(t.Context(), b)
			}
			sourcetest.Fails(t, err, c.want)
			if err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("message %q does not say %q", err, c.text)
			}
		})
	}
}

func TestLabels(t *testing.T) {
	env := []string{"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small", "KUBEVIRT_IO_OS=linux", "PATH=/bin",
		"A_B_KUBEVIRT_IO_C_D=", "X_KUBEVIRT_IO_BAD=no label value", "X_KUBEVIRT_IO_=x", "_KUBEVIRT_IO_X=x", "X_KUBEVIRT_IO_NONE",
		"X_KUBEVIRT_IO_LONG=" + strings.Repeat("x", 64)}
	want := map[string]string{"instancetype.kubevirt.io/default-instancetype": "u1.small", "kubevirt.io/os": "linux",
		"a.b.kubevirt.io/c-d": ""}
	b, err := openImage(t, build(t, v1.Config{Env: env}, layer(t, entry{name: "disk/a"})))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if diff := cmp.Diff(want, b.Info().Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}
