package registry

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/file"
)

// archive is an OCI image layout in a tar file. Its layers are sections of the file.
type archive struct {
	name  string
	file  source.Blob
	parts map[string]span // by path in the layout
}

type span struct{ off, n int64 }

// partLimit bounds the table of contents; an image of 127 layers has some 130 parts.
const partLimit = 10_000

func openArchive(ctx context.Context, path string) (store, error) {
	f, err := file.Open(path)
	if err != nil {
		return nil, err
	}
	a := &archive{name: "oci-archive://" + path, file: f, parts: map[string]span{}}
	if err := a.list(ctx); err != nil {
		_ = f.Close() // err is what matters
		return nil, err
	}
	return a, nil
}

// list reads the table of contents.
func (a *archive) list(ctx context.Context) error {
	at, err := source.NewReaderAt(ctx, a.file)
	if err != nil {
		return err
	}
	r := io.NewSectionReader(at, 0, at.Size()) // tar seeks over what it need not read
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, broken(err))
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		off, err := r.Seek(0, io.SeekCurrent)
		if err != nil {
			return fmt.Errorf("read %s: %w", a.name, err)
		}
		if len(a.parts) == partLimit {
			return task.Errorf(task.BadImage, "%s has more than %d files", a.name, partLimit)
		}
		a.parts[clean(h.Name)] = span{off: off, n: h.Size}
	}
}

func (a *archive) close() error { return a.file.Close() }

func (a *archive) part(path string) (source.Blob, error) {
	s, ok := a.parts[path]
	if !ok {
		return nil, task.Errorf(task.BadImage, "%s has no %s: is it an OCI archive?", a.name, path)
	}
	b, err := source.Section(keepOpen{a.file}, s.off, s.n, a.name)
	if err != nil {
		return nil, task.Errorf(task.BadImage, "%w", err)
	}
	return b, nil
}

func (a *archive) small(ctx context.Context, path string) ([]byte, error) {
	b, err := a.part(path)
	if err != nil {
		return nil, err
	}
	if n := b.Info().Size; n > smallLimit {
		return nil, task.Errorf(task.BadImage, "%s: %s has %d bytes, more than %d", a.name, path, n, smallLimit)
	}
	r, err := b.Open(ctx, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// blobPath returns where the layout keeps a digest.
func blobPath(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

func (a *archive) manifest(ctx context.Context, digest string) ([]byte, error) {
	if digest == "" {
		return a.small(ctx, "index.json")
	}
	h, err := v1.NewHash(digest)
	if err != nil {
		return nil, task.Errorf(task.BadImage, "%s: %w", a.name, err)
	}
	return a.config(ctx, v1.Descriptor{Digest: h})
}

func (a *archive) config(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	text, err := a.small(ctx, blobPath(d.Digest))
	if err != nil {
		return nil, err
	}
	got, _, err := v1.SHA256(bytes.NewReader(text))
	if err != nil || !strings.EqualFold(got.String(), d.Digest.String()) {
		return nil, task.Errorf(task.BadImage, "%s: %s is damaged: its digest is %s", a.name, blobPath(d.Digest), got)
	}
	return text, nil
}

func (a *archive) layer(_ context.Context, d v1.Descriptor) (source.Blob, error) {
	return a.part(blobPath(d.Digest))
}

// keepOpen is a blob that is closed elsewhere.
type keepOpen struct{ source.Blob }

func (keepOpen) Close() error { return nil }
