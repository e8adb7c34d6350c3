package open

import (
	"context"
	"errors"
	"path"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/chain"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// openBackup opens a disk of a set of backups.
func openBackup(ctx context.Context, b task.Backup) (source.Blob, error) {
	files := func(ctx context.Context, name string) (source.Blob, error) {
		in, err := b.Set.Below(name)
		if err != nil {
			return nil, err
		}
		return Open(ctx, in)
	}
	if b.Set.Local != nil {
		local := backup.InDirectory(b.Set.Local.Path)
		files = func(ctx context.Context, name string) (source.Blob, error) {
			return local(ctx, path.Join(b.Path, name))
		}
	}
	return nonNil(backup.Open(ctx, files, backup.Which{Checkpoint: b.Checkpoint, Disk: b.Disk, Manifest: b.Manifest}))
}

// openChain opens files that are one disk.
func openChain(ctx context.Context, c task.Chain) (source.Blob, error) {
	var links []chain.Link
	fail := func(err error) (source.Blob, error) {
		for _, l := range links {
			err = errors.Join(err, l.Blob.Close())
		}
		return nil, err
	}
	if len(c.Files) > chain.MaxLinks {
		return nil, task.Errorf(task.BadTask, "a chain has at most %d files, not %d", chain.MaxLinks, len(c.Files))
	}
	for i, in := range c.Files {
		if in.Backup != nil || in.Chain != nil {
			return fail(task.Errorf(task.BadTask, "a chain is made of files, not of chains"))
		}
		blob, err := Open(ctx, in)
		if err != nil {
			return fail(err)
		}
		links = append(links, chain.Link{Name: blob.Info().Name, Blob: blob, Raw: i == 0 && c.Raw})
	}
	made, err := chain.Open(ctx, links)
	if err != nil {
		return fail(err)
	}
	return made, nil
}

func nonNil(c *chain.Chain, err error) (source.Blob, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}
