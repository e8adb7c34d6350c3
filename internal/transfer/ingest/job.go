// Package ingest brings the bytes of one source to one target: an image to a disk, in the way that suits image and source, or an archive
// to a directory. It continues what an earlier run left, compares the checksum, and makes the result durable.
//
// It does not know how a source is opened, nor what else there is of a volume: it is given a blob. What reads, decodes and writes are
// packages below it.
package ingest

import (
	"context"
	"errors"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/archive"
	"github.com/berth-vm/berth/internal/transfer/checksum"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/directory"
	"github.com/berth-vm/berth/internal/transfer/earlyfill"
	"github.com/berth-vm/berth/internal/transfer/imagestream"
	"github.com/berth-vm/berth/internal/transfer/progress"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// Job is what is brought where.
type Job struct {
	Task   task.Task // its source is not opened
	Record *progress.Record
	Every  time.Duration // how often the progress is noted at the target
	Places int64         // decoded bytes between two places a compressed stream can continue from
}

// Run brings the bytes of blob to the target, and returns the size of the disk in the image; 0: that is not known. The caller closes blob.
func (j Job) Run(ctx context.Context, blob source.Blob) (size int64, err error) {
	info := blob.Info()
	j.Record.Report.Labels = info.Labels
	j.Record.Enter(task.Transferring, info.Size)
	sum, err := checksum.Parse(j.Task.Checksum)
	if m := info.Member; m != nil && err == nil && sum == nil {
		sum, err = checksum.Parse(m.Digest)
	}
	if err != nil {
		return 0, err
	}
	if j.Task.Target.Content == task.Archive {
		return 0, j.unpack(ctx, blob, sum)
	}
	disk, err := earlyfill.OpenDisk(j.Task)
	if err != nil {
		return 0, err
	}
	i := &importing{Job: j, blob: blob, info: info, disk: disk, sum: sum}
	err = earlyfill.Condemn(ctx, j.Task, i.run(ctx))
	j.Record.Report.Written += disk.Written()
	if err != nil && progress.ReasonOf(ctx, err).Outcome() == task.Fatal && !i.used {
		err = errors.Join(err, disk.Discard()) // nothing of it can be used
	}
	return i.size, errors.Join(err, disk.Close())
}

// raw reports whether the bytes are the disk. A volume that a guest wrote may begin with the head of an image that names other files, so
// it is not inspected.
func (j Job) raw() bool {
	s := j.Task.Source
	return j.Task.Raw || s.Peer != nil || s.Local != nil && s.Local.Raw
}

// options returns how a stream is read.
func (j Job) options(sum *checksum.Sum) imagestream.Options {
	return imagestream.Options{Sum: sum, Meter: j.Record.Meter, Raw: j.raw(), Every: j.Places}
}

// unpack reads a tar archive, compressed or not, and unpacks it into a directory. It is not continued after a crash but begun
// again, on an empty directory if it is on a claim.
func (j Job) unpack(ctx context.Context, blob source.Blob, sum *checksum.Sum) error {
	var keep func(string) bool // everything, of a directory that was named explicitly
	if j.Task.Claim != "" {
		keep = directory.Nothing // the claim was made for this, and holds what an earlier try left
	}
	dir, err := directory.Open(j.Task.Target.Path, keep)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = j.unpackInto(ctx, dir, blob, sum)
	j.Record.Report.Written = dir.Written()
	return errors.Join(err, dir.Close())
}

func (j Job) unpackInto(ctx context.Context, dir *directory.Directory, blob source.Blob, sum *checksum.Sum) error {
	in, err := imagestream.Open(ctx, blob, nil, j.options(sum))
	if err != nil {
		return err
	}
	defer in.Close()
	j.Record.Report.Format = "tar"
	if wrap := in.Compression(); wrap != decode.None {
		j.Record.Report.Format += "." + string(wrap)
	}
	s, name := j.Task.Source, blob.Info().Name
	if err := archive.Unpack(ctx, in.Decoded(), dir, archive.Origin{Name: name, MayBeEmpty: s.Local != nil || s.Peer != nil}); err != nil {
		return err
	}
	if err := in.DrainSource(); err != nil {
		return err
	}
	if sum != nil {
		j.Record.Report.Digest = sum.Digest()
		if err := sum.Check(name); err != nil {
			return err
		}
	}
	j.Record.Enter(task.Flushing, 0)
	return dir.Finish()
}
