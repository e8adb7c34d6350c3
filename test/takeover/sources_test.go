//go:build peers && e2e

package takeover

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// diskSize is that of the disks here: raw, and random, so that nothing else is taken for them.
const diskSize = 8 << 20

func disk(seed uint64) []byte {
	data := make([]byte, diskSize)
	source := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = source.Read(data) // never fails
	return data
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// sources is a server of disks. One of them is held back in the middle until the test lets it go.
type sources struct {
	url     string
	disks   map[string][]byte
	open    sync.Once
	release chan struct{}

	mu   sync.Mutex
	asks map[string]int
}

func (s *site) newSources() *sources {
	s.T.Helper()
	o := &sources{disks: map[string][]byte{}, release: make(chan struct{}), asks: map[string]int{}}
	s.T.Cleanup(o.letGo)
	o.url = s.Serve(o)
	return o
}

// letGo lets the disk that is held back come to its end.
func (o *sources) letGo() { o.open.Do(func() { close(o.release) }) }

// asked returns how often each disk was asked for.
func (o *sources) asked() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.asks)
}

func (o *sources) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	data, found := o.disks[name]
	if !found {
		http.NotFound(w, r)
		return
	}
	o.mu.Lock()
	o.asks[name]++
	o.mu.Unlock()
	var content io.ReadSeeker = bytes.NewReader(data)
	if strings.HasPrefix(name, "slow") {
		content = &heldBack{content, o.release, r.Context().Done()}
	}
	http.ServeContent(w, r, name, time.Unix(1700000000, 0), content)
}

// heldBack gives the first mebibyte, and the rest when it is told to.
type heldBack struct {
	io.ReadSeeker
	release, gone <-chan struct{}
}

func (h *heldBack) Read(p []byte) (int, error) {
	at, err := h.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	if at >= 1<<20 {
		select {
		case <-h.release:
		case <-h.gone:
			return 0, io.ErrUnexpectedEOF
		}
	}
	return h.ReadSeeker.Read(p)
}

// newRegistry is one without TLS. It returns its host and port.
func (s *site) newRegistry() string {
	s.T.Helper()
	return strings.TrimPrefix(s.Serve(registry.New(registry.Logger(log.New(io.Discard, "", 0)))), "http://")
}

// push puts a container disk into the registry.
func (s *site) push(at string, disk []byte) {
	s.T.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "disk/disk.img", Mode: 0o444, Uid: 107, Gid: 107, Size: int64(len(disk))}); err != nil {
		s.T.Fatal(err)
	}
	if _, err := w.Write(disk); err != nil {
		s.T.Fatal(err)
	}
	if err := w.Close(); err != nil {
		s.T.Fatal(err)
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		s.T.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, made)
	if err == nil {
		var file *v1.ConfigFile
		if file, err = image.ConfigFile(); err == nil {
			file = file.DeepCopy()
			file.OS, file.Architecture = "linux", "amd64"
			image, err = mutate.ConfigFile(image, file)
		}
	}
	if err != nil {
		s.T.Fatal(err)
	}
	to, err := name.ParseReference(at, name.Insecure)
	if err == nil {
		err = remote.Write(to, image)
	}
	if err != nil {
		s.T.Fatal(fmt.Errorf("push %s: %w", at, err))
	}
}
