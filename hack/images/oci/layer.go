// Package oci makes container images without a daemon: layers that depend on nothing but their content, and OCI archives that
// `ctr images import` and every other tool can read. The same inputs give the same bytes, on every machine and at any time.
//
// It does not know what is in an image.
package oci

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/stream"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Epoch is the time of everything that must have one.
var Epoch = time.Unix(0, 0).UTC()

// Cache is a folder of finished layers.
type Cache struct{ Dir string }

// Layer returns the layer that fill writes, from the cache if one was made for this key before. The key names everything that the
// content depends on; two contents must never share one.
func (c Cache) Layer(key string, fill func(*Writer) error) (v1.Layer, error) {
	if l, err := c.cached(key); err == nil || !errors.Is(err, os.ErrNotExist) {
		return l, err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make layer cache: %w", err)
	}
	tmp, err := os.CreateTemp(c.Dir, "layer-")
	if err != nil {
		return nil, fmt.Errorf("make layer: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()); _ = tmp.Close() }()
	l, err := writeLayer(tmp, fill)
	if err != nil {
		return nil, err
	}
	l.path = c.path(key)
	description, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("describe layer: %w", err)
	}
	// The description is written last: a layer is in the cache when it has one.
	if err := os.Rename(tmp.Name(), l.path); err != nil {
		return nil, fmt.Errorf("keep layer: %w", err)
	}
	if err := os.WriteFile(l.path+".json", description, 0o644); err != nil {
		return nil, fmt.Errorf("keep layer: %w", err)
	}
	return l, nil
}

func (c Cache) path(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(c.Dir, hex.EncodeToString(sum[:])+".tar.gz")
}

func (c Cache) cached(key string) (v1.Layer, error) {
	l := &layer{path: c.path(key)}
	description, err := os.ReadFile(l.path + ".json")
	if err != nil {
		return nil, fmt.Errorf("read cached layer: %w", err)
	}
	if err := json.Unmarshal(description, l); err != nil {
		return nil, fmt.Errorf("read cached layer %s.json (delete it): %w", l.path, err)
	}
	info, err := os.Stat(l.path)
	if err != nil {
		return nil, fmt.Errorf("read cached layer: %w", err)
	}
	if info.Size() != l.Bytes {
		return nil, fmt.Errorf("cached layer %s has %d bytes, not %d: delete it", l.path, info.Size(), l.Bytes)
	}
	// The time says when it was last used. A cache that cannot be touched is still good to read.
	_ = os.Chtimes(l.path+".json", time.Time{}, time.Now())
	return l, nil
}

// Prune removes layers that were not used since.
func (c Cache) Prune(since time.Time) error {
	descriptions, err := filepath.Glob(filepath.Join(c.Dir, "*.json"))
	if err != nil {
		return fmt.Errorf("list layer cache: %w", err)
	}
	for _, d := range descriptions {
		info, err := os.Stat(d)
		if err != nil || info.ModTime().After(since) {
			continue
		}
		if err := errors.Join(os.Remove(d), os.Remove(strings.TrimSuffix(d, ".json"))); err != nil {
			return fmt.Errorf("prune layer cache: %w", err)
		}
	}
	return nil
}

func writeLayer(to io.Writer, fill func(*Writer) error) (*layer, error) {
	content, filled := io.Pipe()
	go func() {
		w := &Writer{tar: tar.NewWriter(filled), made: map[string]bool{}}
		err := fill(w)
		if err == nil {
			err = w.tar.Close()
		}
		filled.CloseWithError(err)
	}()
	l := stream.NewLayer(content, stream.WithCompressionLevel(gzip.BestSpeed))
	compressed, err := l.Compressed()
	if err != nil {
		return nil, fmt.Errorf("compress layer: %w", err)
	}
	if _, err := io.Copy(to, compressed); err != nil {
		return nil, errors.Join(fmt.Errorf("fill layer: %w", err), compressed.Close())
	}
	if err := compressed.Close(); err != nil { // it has its digests from here on
		return nil, fmt.Errorf("end layer: %w", err)
	}
	done := &layer{}
	if done.Compress, err = l.Digest(); err != nil {
		return nil, fmt.Errorf("digest of layer: %w", err)
	}
	if done.Plain, err = l.DiffID(); err != nil {
		return nil, fmt.Errorf("digest of layer: %w", err)
	}
	if done.Bytes, err = l.Size(); err != nil {
		return nil, fmt.Errorf("measure layer: %w", err)
	}
	return done, nil
}

// layer is a finished layer in a file. Its digests are remembered because computing them again means reading all of it.
type layer struct {
	path     string
	Compress v1.Hash
	Plain    v1.Hash
	Bytes    int64
}

func (l *layer) Digest() (v1.Hash, error)             { return l.Compress, nil }
func (l *layer) DiffID() (v1.Hash, error)             { return l.Plain, nil }
func (l *layer) Size() (int64, error)                 { return l.Bytes, nil }
func (l *layer) MediaType() (types.MediaType, error)  { return types.OCILayer, nil }
func (l *layer) Compressed() (io.ReadCloser, error)   { return os.Open(l.path) }
func (l *layer) Uncompressed() (io.ReadCloser, error) { return gunzip(l.path) }

func gunzip(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open layer: %w", err)
	}
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open layer: %w", err), f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{r, f}, nil
}
