//go:build host

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// containerDisk returns a layer with a disk.
func containerDisk(t *testing.T, disk []byte, packed bool) []byte {
	t.Helper()
	var b bytes.Buffer
	var to io.WriteCloser = struct {
		io.Writer
		io.Closer
	}{&b, io.NopCloser(nil)}
	if packed {
		to = gzip.NewWriter(&b)
	}
	w := tar.NewWriter(to)
	if err := w.WriteHeader(&tar.Header{Name: "disk/disk.img", Mode: 0o444, Size: int64(len(disk))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(disk); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if packed {
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// inRegistry returns a registry with an image for each layer.
func inRegistry(t *testing.T, layers ...[]byte) []string {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	var out []string
	for i, l := range layers {
		img, err := mutate.AppendLayers(empty.Image, static.NewLayer(l, types.DockerLayer))
		if err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("%s/disks/d%d:latest", strings.TrimPrefix(s.URL, "http://"), i)
		ref, err := name.ParseReference(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, img); err != nil {
			t.Fatal(err)
		}
		out = append(out, at)
	}
	return out
}

// streaming runs `worker stream` and gives the URL of its target.
func streaming(t *testing.T, flags []string, images ...string) (url string, said *lockedBuffer) {
	t.Helper()
	chap := t.TempDir()
	for name, text := range map[string]string{"node.session.auth.username": "vm", "node.session.auth.password": "secret1234567"} {
		if err := os.WriteFile(filepath.Join(chap, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"stream", "--listen", "127.0.0.1:0", "--chap", chap, "--cache", t.TempDir(), "--cache-size", "256Mi", "--plain-http"}, flags...)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int)
	said = &lockedBuffer{}
	go func() { done <- run(ctx, append(args, images...), io.Discard, said) }()
	t.Cleanup(func() {
		stop()
		if code := <-done; code != 0 {
			t.Errorf("it ended with %d: %s", code, said)
		}
	})
	const target = "iqn.2026-01.dev.berth:stream"
	for i := range images {
		said.await(t, fmt.Sprintf("LUN %d is ", i))
	}
	_, rest, _ := strings.Cut(said.String(), target+" at ")
	at, _, _ := strings.Cut(rest, "\n")
	return "iscsi://vm%secret1234567@" + at + "/" + target, said
}

// lockedBuffer collects the output of a running program.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) await(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(l.String(), text); time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // a program's words
		if time.Now().After(end) {
			t.Fatalf("it does not say %q: %s", text, l)
		}
	}
}

func diskNoise(n int, seed uint64) []byte {
	p, r := make([]byte, n), rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(p)
	clear(p[n/4 : n/2])
	return p
}

// fetched returns what qemu-img reads from a URL.
func fetched(t *testing.T, url string) []byte {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "convert", "-W", "-m", "8", "-f", "raw", "-O", "raw", url, to).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	b, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestStreamQEMU: QEMU's own initiator reads the disks of three images byte by byte, through CHAP, before the layers are verified
// and after, and no client without the secret does.
func TestStreamQEMU(t *testing.T) {
	t.Parallel()
	disks := [][]byte{diskNoise(20<<20, 1), diskNoise(33<<20+512, 2), diskNoise(8<<20, 3)}
	cow := filepath.Join(t.TempDir(), "cow")
	raw := cow + ".raw"
	if err := os.WriteFile(raw, disks[2], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", raw, cow).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	packed, err := os.ReadFile(cow)
	if err != nil {
		t.Fatal(err)
	}
	images := inRegistry(t, containerDisk(t, disks[0], false), containerDisk(t, disks[1], true), containerDisk(t, packed, true))
	url, said := streaming(t, nil, images...)
	for round := range 2 {
		for i, want := range disks {
			if got := fetched(t, fmt.Sprintf("%s/%d", url, i)); !bytes.Equal(got, want) {
				t.Errorf("round %d, LUN %d: %d bytes that differ from the %d of the disk", round, i, len(got), len(want))
			}
			said.await(t, fmt.Sprintf("LUN %d: the layer's digest is right", i))
		}
	}
	for says, bad := range map[string]string{
		"a wrong secret": strings.Replace(url, "secret", "Secret", 1) + "/0", "no secret": strings.Replace(url, "vm%secret1234567@", "", 1) + "/0",
		"another target": strings.Replace(url, ":stream", ":other", 1) + "/0", "another LUN": url + "/3",
	} {
		if out, err := exec.CommandContext(t.Context(), "qemu-img", "info", "-f", "raw", bad).CombinedOutput(); err == nil {
			t.Errorf("%s: %s", says, out)
		}
	}
}
