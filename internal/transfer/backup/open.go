package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/chain"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// Files opens a file of a set by its path below the set's directory.
type Files func(ctx context.Context, path string) (source.Blob, error)

// Which is a disk at a checkpoint.
type Which struct {
	Checkpoint, Disk string
	// Manifest is "sha256:..." of the checkpoint's manifest, and so of all earlier backups; empty: it is not known.
	Manifest string
}

// link is one backup of a chain that is read.
type link struct {
	manifest *Manifest
	disk     Disk
}

// Open reads the manifests from the checkpoint down to the backup that has the disk as a whole, and opens it as one. Each backup has to be
// the one that the manifest above it was made on, and each image as large as its manifest says; of images, nothing is handed out whose sum
// was not compared. ctx is for all that is read later, too.
func Open(ctx context.Context, files Files, w Which) (*chain.Chain, error) {
	links, err := descend(ctx, files, w)
	if err != nil {
		return nil, err
	}
	var open []chain.Link
	fail := func(err error) (*chain.Chain, error) {
		for _, l := range open {
			err = errors.Join(err, l.Blob.Close())
		}
		return nil, err
	}
	var all int64
	for i := len(links) - 1; i >= 0; i-- {
		l := links[i]
		if all += l.disk.pieces() * 32; all > maxSums {
			return fail(task.Errorf(task.UnsupportedImage, "the files of the chain have more sums than fit in %d bytes", maxSums))
		}
		blob, err := openImage(ctx, files, l)
		if err != nil {
			return fail(err)
		}
		open = append(open, chain.Link{Name: blob.name, Blob: blob, Size: l.disk.Size})
	}
	c, err := chain.Open(ctx, open)
	if err != nil {
		return fail(err)
	}
	return c, nil
}

// Read reads the manifest of a backup, and returns its digest too, which proves everything below it.
func Read(ctx context.Context, files Files, checkpoint string) (*Manifest, string, error) {
	return readManifest(ctx, files, checkpoint, "")
}

// Check reads the manifests that Open reads, and no image: an error is one that Open would return too.
func Check(ctx context.Context, files Files, w Which) error {
	_, err := descend(ctx, files, w)
	return err
}

// Links returns of how many backups a disk at a checkpoint is made up. It reads the manifests that Open reads, and no image.
func Links(ctx context.Context, files Files, w Which) (int, error) {
	links, err := descend(ctx, files, w)
	return len(links), err
}

// IsName reports whether a backup, a disk or a file of one can have that name.
func IsName(s string) bool { return names.MatchString(s) }

// descend reads the manifests, the newest first.
func descend(ctx context.Context, files Files, w Which) ([]link, error) {
	var links []link
	next, proof, above := w.Checkpoint, w.Manifest, ""
	for {
		m, _, err := readManifest(ctx, files, next, proof)
		if err != nil {
			if above != "" {
				err = fmt.Errorf("%s is what backup %s was made on: %w", next, above, err)
			}
			return nil, err
		}
		d, err := m.disk(w.Disk)
		if err != nil {
			return nil, err
		}
		if n := len(links); n > 0 && links[n-1].disk.Size < d.Size {
			return nil, task.Errorf(task.BadImage, "disk %s has %d bytes in backup %s and %d in %s below it: a disk that became smaller has no increments",
				d.Name, links[n-1].disk.Size, above, d.Size, m.Checkpoint)
		}
		links = append(links, link{m, d})
		if !d.Increment {
			return links, nil
		}
		if len(links) == chain.MaxLinks {
			return nil, task.Errorf(task.UnsupportedImage, "the chain of backup %s has more than %d backups", w.Checkpoint, chain.MaxLinks)
		}
		next, proof, above = m.Parent.Checkpoint, m.Parent.Manifest, m.Checkpoint
	}
}

// readManifest reads the manifest of a backup. proof is its digest; empty: it is not known.
func readManifest(ctx context.Context, files Files, checkpoint, proof string) (*Manifest, string, error) {
	if !names.MatchString(checkpoint) {
		return nil, "", task.Errorf(task.BadTask, "%q is no name of a backup", checkpoint)
	}
	name := path.Join(checkpoint, ManifestFile)
	text, err := readAll(ctx, files, name, maxManifest)
	if err != nil {
		return nil, "", err
	}
	is := digest(text)
	if proof != "" && is != proof {
		return nil, "", task.Errorf(task.ChecksumMismatch, "%s is not the one that is meant: its digest is %s, not %s", name, is, proof)
	}
	m, err := Parse(text)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	if m.Checkpoint != checkpoint {
		return nil, "", task.Errorf(task.BadImage, "%s is the manifest of backup %s", name, m.Checkpoint)
	}
	return m, is, nil
}

// openImage opens the image of a link with its sums.
func openImage(ctx context.Context, files Files, l link) (*proven, error) {
	d, dir := l.disk, l.manifest.Checkpoint
	text, err := readAll(ctx, files, path.Join(dir, d.Sums), d.pieces()*lineSize)
	if err != nil {
		return nil, err
	}
	sums, err := parseSums(d, text)
	if err != nil {
		return nil, fmt.Errorf("backup %s: %w", dir, err)
	}
	name := path.Join(dir, d.File)
	blob, err := files(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if info := blob.Info(); info.Size != d.Bytes {
		err := task.Errorf(task.BadImage, "%s has %d bytes and had %d when it was written: it was cut off or is another file", name, info.Size, d.Bytes)
		return nil, errors.Join(err, blob.Close())
	}
	return &proven{Blob: blob, name: name, disk: d, sums: sums}, nil
}

// readAll reads a file of at most so many bytes.
func readAll(ctx context.Context, files Files, name string, most int64) ([]byte, error) {
	blob, err := files(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer blob.Close() // it was only read
	r, err := blob.Open(ctx, 0, -1)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	p, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(p)) > most {
		return nil, task.Errorf(task.BadImage, "%s has more than %d bytes", name, most)
	}
	return p, nil
}
