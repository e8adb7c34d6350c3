package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/http"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// Image is a container image for one platform, with all its layers.
type Image struct {
	Name   string // as a person would look for it
	Digest string // of its manifest
	Config v1.Config
	Layers int

	image *image
	store store
}

// Pull opens an image for an architecture. Every connection is made by dial, if there is one. Layers are not read yet.
func Pull(ctx context.Context, t task.Registry, arch string, dial http.Dial) (*Image, error) {
	return pull(ctx, t, arch, retry.Default, dial)
}

func pull(ctx context.Context, t task.Registry, arch string, p retry.Policy, dial http.Dial) (*Image, error) {
	s, name, err := openStore(ctx, t, p, dial)
	if err != nil {
		return nil, err
	}
	img, err := resolve(ctx, s, name, platform{arch: arch})
	if err == nil && len(img.config.RootFS.DiffIDs) != len(img.layers) {
		err = task.Errorf(task.BadImage, "%s: it has %d layers, and its configuration knows of %d", name, len(img.layers), len(img.config.RootFS.DiffIDs))
	}
	if err == nil && img.config.OS != "" && img.config.OS != "linux" {
		err = task.Errorf(task.UnsupportedImage, "%s is an image for %s", name, img.config.OS)
	}
	if err != nil {
		_ = s.close() // err is what matters
		return nil, err
	}
	return &Image{Name: name, Digest: img.digest, Config: img.config.Config, Layers: len(img.layers), image: img, store: s}, nil
}

// Close closes the image.
func (i *Image) Close() error { return i.store.close() }

// Layer is a layer as its registry has it.
type Layer struct {
	Digest string // of the blob
	Size   int64
	Diff   string // the digest of the archive in it
}

// Layer describes a layer, the lowest being 0.
func (i *Image) Layer(n int) Layer {
	d := i.image.layers[n]
	return Layer{Digest: d.Digest.String(), Size: d.Size, Diff: i.image.config.RootFS.DiffIDs[n].String()}
}

// Blob opens a layer as the registry stores it. Its bytes are not verified.
func (i *Image) Blob(ctx context.Context, n int) (source.Blob, error) {
	return i.store.layer(ctx, i.image.layers[n])
}

// Read hands the archive of a layer to use, decompressed and of at most limit bytes, the lowest layer being 0. Whatever use made of it is only good
// if there is no error: the archive's digest is known when all of it was read, and what use left is read for that.
func (i *Image) Read(ctx context.Context, layer int, limit int64, use func(io.Reader) error) error {
	d := i.image.layers[layer]
	blob, err := i.store.layer(ctx, d)
	if err != nil {
		return err
	}
	defer blob.Close()
	plain, err := decompressed(ctx, blob, source.AheadOptions{}, decode.Options{Limit: limit})
	if err != nil {
		return inLayer(i.Name, d.Digest, err)
	}
	defer plain.Close()
	summed := &summer{r: plain, hash: sha256.New()}
	if err := use(summed); err != nil {
		return inLayer(i.Name, d.Digest, err)
	}
	if _, err := io.Copy(io.Discard, summed); err != nil {
		return inLayer(i.Name, d.Digest, err)
	}
	want := i.image.config.RootFS.DiffIDs[layer]
	if got := hex.EncodeToString(summed.hash.Sum(nil)); want.Algorithm != "sha256" || got != want.Hex {
		return inLayer(i.Name, d.Digest, task.Errorf(task.ChecksumMismatch, "its content has the digest sha256:%s, its image says %s", got, want))
	}
	return nil
}

// summer sums up what was read.
type summer struct {
	r    io.Reader
	hash hash.Hash
}

func (s *summer) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	_, _ = s.hash.Write(p[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		err = broken(err)
	}
	return n, err
}

// Disk copies the disk of a container disk, a file under /disk/, and says whether the image is one.
func (i *Image) Disk(ctx context.Context, to io.Writer, limit int64) (bool, error) {
	above := &cover{}
	for n := i.Layers - 1; n >= 0 && !above.all(); n-- {
		d := i.image.layers[n]
		blob, err := i.store.layer(ctx, d)
		if err != nil {
			return false, err
		}
		member, err := locate(ctx, blob, above)
		_ = blob.Close() // the layer is read once more, if it has the disk
		if err != nil {
			return false, inLayer(i.Name, d.Digest, err)
		}
		if member == nil {
			continue
		}
		if member.Size > limit {
			return false, task.Errorf(task.DoesNotFit, "%s: its disk has %d bytes, more than %d", i.Name, member.Size, limit)
		}
		return true, i.Read(ctx, n, limit, func(r io.Reader) error {
			if _, err := io.CopyN(io.Discard, r, member.Offset); err != nil {
				return broken(err)
			}
			if _, err := io.CopyN(to, r, member.Size); err != nil {
				return broken(err)
			}
			return member.Rest(r)
		})
	}
	return false, nil
}
