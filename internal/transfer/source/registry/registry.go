// Package registry finds the disk in a container image: a file under /disk/, in the topmost layer that has one, of an image in a
// registry (docker://) or in an OCI archive (oci-archive://).
//
// The blob it returns is the layer as it is stored, compressed or not, because only that can be read in ranges and continued after
// an interruption; Info.Member says where in the decompressed layer the disk lies. Finding it means reading the layer's front up
// to the disk's header: a layer says nothing of its content beforehand. Layers above it that have no disk are read to their end
// for the same reason. What lies under /disk/ in layers below it is not looked at.
//
// It does not know disk formats, and no file of an image is ever written under the name it has there.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/http"
	"github.com/berth-vm/berth/internal/transfer/source/retry"
)

// store gives access to the parts of an image.
type store interface {
	// manifest brings the manifest with this digest, or the one the task names if digest is empty, checked.
	manifest(ctx context.Context, digest string) ([]byte, error)
	// config brings a small blob whole, checked.
	config(ctx context.Context, d v1.Descriptor) ([]byte, error)
	// layer opens a layer. Its bytes are not verified: the reader of all of them does that.
	layer(ctx context.Context, d v1.Descriptor) (source.Blob, error)
	close() error
}

// smallLimit bounds manifests and configurations; registries are told by their specification to expect 4 MiB.
const smallLimit = 4 << 20

// Open finds the disk in the image. Closing the blob closes all connections for it.
func Open(ctx context.Context, t task.Registry) (source.Blob, error) {
	return open(ctx, t, retry.Default)
}

// openStore opens where the task's image is, and says what it is called.
func openStore(ctx context.Context, t task.Registry, p retry.Policy, dial http.Dial) (s store, name string, err error) {
	where, err := parse(t.URL, t.PlainHTTP)
	if err != nil {
		return nil, "", err
	}
	if where.path != "" {
		s, err = openArchive(ctx, where.path)
	} else {
		s, err = openRemote(ctx, where.ref, t, p, dial)
	}
	return s, where.String(), err
}

func open(ctx context.Context, t task.Registry, p retry.Policy) (source.Blob, error) {
	s, name, err := openStore(ctx, t, p, nil)
	if err != nil {
		return nil, err
	}
	b, err := find(ctx, s, name, t.Architecture)
	if err != nil {
		_ = s.close() // err is what matters
		return nil, err
	}
	return b, nil
}

// find looks for the disk, from the topmost layer down.
func find(ctx context.Context, s store, name, arch string) (source.Blob, error) {
	img, err := resolve(ctx, s, name, asked(arch))
	if err != nil {
		return nil, err
	}
	above := &cover{}
	for i := len(img.layers) - 1; i >= 0 && !above.all(); i-- {
		d := img.layers[i]
		blob, err := s.layer(ctx, d)
		if err != nil {
			return nil, err
		}
		member, err := locate(ctx, blob, above)
		if err != nil {
			_ = blob.Close() // err is what matters
			return nil, inLayer(name, d.Digest, err)
		}
		if member == nil {
			_ = blob.Close() // read to its end, there was nothing
			continue
		}
		member.Digest, member.Annotations = d.Digest.String(), d.Annotations
		rest := member.Rest
		member.Rest = func(r io.Reader) error {
			if err := rest(r); err != nil {
				return inLayer(name, d.Digest, err)
			}
			return nil
		}
		info := blob.Info()
		info.Name = name
		info.Version = fmt.Sprintf("image:%s layer:%s", img.digest, d.Digest)
		info.Labels = img.labels
		info.Member = member
		return &disk{Blob: source.WithInfo(blob, info), store: s}, nil
	}
	return nil, task.Errorf(task.BadImage, "%s has no file under /disk/ in any of its %d layers: a container disk is made with "+
		"ADD disk.qcow2 /disk/", name, len(img.layers))
}

// inLayer adds the layer's name to an error; the reason stays.
func inLayer(name string, digest v1.Hash, err error) error {
	var e *task.Error
	if errors.As(err, &e) {
		return task.Errorf(e.Reason, "%s, layer %s: %w", name, digest, err)
	}
	return fmt.Errorf("%s, layer %s: %w", name, digest, err)
}

// disk is a layer that takes its store along.
type disk struct {
	source.Blob
	store store
}

func (d *disk) Close() error { return errors.Join(d.Blob.Close(), d.store.close()) }
