// Package imagetest has container images, and the node's cache of their layers, for tests of machines that boot from them.
package imagetest

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	hub "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	nothing "github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	to "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/layercache"
	"github.com/berth-vm/berth/internal/transfer/source/registry"
)

// Pulled is an image of layers with these files, from a registry of the test.
func Pulled(t *testing.T, layers ...[]string) *registry.Image {
	t.Helper()
	s := httptest.NewServer(hub.New(hub.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	img, err := mutate.ConfigFile(nothing.Image, &v1.ConfigFile{Architecture: "amd64", OS: "linux"})
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
	out, err := registry.Pull(t.Context(), task.Registry{URL: "docker://" + ref}, "amd64", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return out
}

// MeetCache introduces a launcher that waits in dir to the cache, as the node's agent does.
func MeetCache(t *testing.T, dir string, c *layercache.Cache) {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, rendezvous.LayersSocket), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	side := t.TempDir()
	l, err := rendezvous.Serve(side, func(c2 *net.UnixConn) bool {
		go func() { _ = c.Serve(t.Context(), c2, "team", layercache.DefaultPace) }()
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cache, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(side, rendezvous.Socket), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	if err := rendezvous.IntroduceCache(cache, conn, "team"); err != nil {
		t.Fatal(err)
	}
}

// OwnFiles checks that no file of a stack is the node's.
func OwnFiles(t *testing.T, b backing.Disk) {
	t.Helper()
	for at := &b; at != nil; at = at.Master {
		if info, err := os.Lstat(at.Path); err != nil || !info.Mode().IsRegular() || at.NodeFile != nil {
			t.Errorf("%s is not this machine's own: %v", at.Path, err)
		}
	}
	if b.UsesNodeFiles() {
		t.Error("something of it is the node's")
	}
}
