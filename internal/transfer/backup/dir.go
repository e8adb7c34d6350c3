package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/source/file"
)

// InDirectory opens the files of a set in a directory. Links in it lead nowhere else.
func InDirectory(dir string) Files {
	return func(_ context.Context, path string) (source.Blob, error) {
		root, err := os.OpenRoot(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, task.Errorf(task.SourceNotFound, "open the backups: %w", err)
		}
		if err != nil {
			return nil, task.Errorf(task.SourceUnreachable, "open the backups: %w", err)
		}
		defer root.Close() // the file stays open
		return file.OpenIn(root, path)
	}
}

// List returns the manifests of a set in a directory, the oldest first. What is no backup, or one that cannot be read, is left out.
func List(ctx context.Context, dir string) ([]*Manifest, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, task.Errorf(task.SourceUnreachable, "list the backups: %w", err)
	}
	var all []*Manifest
	for _, e := range entries {
		if !e.IsDir() || !names.MatchString(e.Name()) {
			continue
		}
		if m, _, err := readManifest(ctx, InDirectory(dir), e.Name(), ""); err == nil {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b *Manifest) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// Find returns the manifest of a backup of a set in a directory, and its digest.
func Find(ctx context.Context, dir, checkpoint string) (*Manifest, string, error) {
	return readManifest(ctx, InDirectory(dir), checkpoint, "")
}
