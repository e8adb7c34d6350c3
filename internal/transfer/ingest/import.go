package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/chain"
	"github.com/berth-vm/berth/internal/transfer/checksum"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/transfer/earlyboot"
	"github.com/berth-vm/berth/internal/transfer/earlyfill"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
	"github.com/berth-vm/berth/internal/transfer/resume"
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/sweep"
)

// importing is one image on its way to one disk.
type importing struct {
	Job
	blob source.Blob
	info source.Info
	disk sink.Target
	sum  *checksum.Sum
	note resume.Note  // the one being kept
	old  *resume.Note // what an earlier run left and may be continued

	size  int64              // of the disk in the image; 0: that is not known
	used  bool               // a guest may have used the disk, so that it is never begun again
	guest *earlyfill.Serving // it is being used; nil: it is not
}

// run finds out what the image is and brings it the way that suits it.
func (i *importing) run(ctx context.Context) error {
	if err := i.recall(); err != nil {
		return err
	}
	if runs, ok := i.blob.(source.Runs); ok && i.sum == nil {
		return i.runs(ctx, runs)
	}
	if c, ok := i.blob.(*chain.Chain); ok {
		return i.sweepImage(ctx, "chain", c)
	}
	if !i.info.Ranged || i.info.Size < 0 {
		i.fill().Unserved("its source can only be read in order")
		return i.stream(ctx)
	}
	if i.info.Member != nil && !i.Task.Early && !i.used {
		return i.stream(ctx)
	}
	at, err := source.NewReaderAt(ctx, i.blob)
	if err != nil {
		return err
	}
	file := extent.File{ReaderAt: at, Size: i.info.Size}
	if m := i.info.Member; m != nil {
		switch plain, err := i.plainMember(ctx, file); {
		case err != nil:
			return err
		case !plain:
			return i.stream(ctx)
		}
		file = extent.File{ReaderAt: io.NewSectionReader(at, m.Offset, m.Size), Size: m.Size}
	}
	if i.raw() {
		return i.sweep(ctx, format.Raw, file)
	}
	head := make([]byte, min(format.HeadSize, file.Size))
	if _, err := file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if decode.Detect(head) != decode.None {
		i.fill().Unserved("its image is compressed as a whole, so that it can only be read in order")
		return i.stream(ctx)
	}
	tail := make([]byte, min(format.TailSize, file.Size))
	if _, err := file.ReadAt(tail, file.Size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	kind := format.Detect(head, tail, file.Size)
	if err := i.refusePage(kind, decode.None, head); err != nil {
		return err
	}
	return i.sweep(ctx, kind, file)
}

// recall looks for what an earlier run left.
func (i *importing) recall() error {
	b, err := i.disk.Note()
	if err != nil {
		return err
	}
	if i.info.Weak != "" && i.sum == nil {
		i.info.Version = ""
		i.Record.Say(fmt.Sprintf("%s %s: what is read of it at different times may not belong together, so an interrupted transfer starts over; "+
			"a checksum would prove it", i.info.Name, i.info.Weak))
	}
	at, err := earlyboot.Recall(i.Task.Target.Path, i.Task.Claim)
	if err != nil {
		return err
	}
	i.used = at != nil
	i.note = resume.NewNote(i.Task, i.info)
	old := resume.ReadNote(b)
	ok, why := i.note.MayContinue(old)
	if ok {
		i.old = old
	} else if why != "" {
		i.Record.Say(why + "; started over")
	}
	return nil
}

// sweep brings an image that can be read anywhere.
func (i *importing) sweep(ctx context.Context, kind format.Kind, file extent.File) error {
	image, err := format.Open(kind, file, file.Size)
	if err != nil {
		return err
	}
	if m := i.info.Member; m != nil {
		image = &memberImage{Image: image, offset: m.Offset, size: m.Size}
	}
	if sparse, ok := i.blob.(source.Sparse); ok && kind == format.Raw && i.sum == nil {
		image = &sparseImage{Image: image, blob: sparse}
	}
	return i.sweepImage(ctx, kind, image)
}

// sweepImage brings an image whose tables were found.
func (i *importing) sweepImage(ctx context.Context, kind format.Kind, image format.Image) error {
	i.note.Format, i.note.Virtual = string(kind), image.Size()
	if i.old != nil && (i.old.State != nil || i.old.Format != i.note.Format || i.old.Virtual != i.note.Virtual) {
		i.old = nil
	}
	if i.old != nil && i.sum != nil && i.sum.Fresh().Restore(i.old.Hash) != nil {
		i.old = nil // another version of this program wrote it
		i.Record.Say(resume.ErrStartOver.Error() + "; started over")
	}
	done, err := i.begin(image.Size())
	if done || err != nil {
		return err
	}
	if local, ok := i.blob.(fileBlob); ok && kind == format.Raw && i.sum == nil && i.old == nil {
		if err := i.disk.Clone(ctx, local.File()); !errors.Is(err, errors.ErrUnsupported) {
			return i.finish(err, nil)
		}
	}
	pass := &sweep.Pass{Blob: i.blob, Size: i.info.Size, Image: image, Disk: i.disk, Sum: i.sum, Meter: i.Record.Meter}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := pass.Start(ctx, i.old); err != nil {
		return err
	}
	if err := i.serve(ctx, pass); err != nil {
		return err
	}
	k := i.keep(pass.Claim, cancel)
	err = pass.Run(ctx)
	return i.guest.End(ctx, i.finish(because(ctx, err), k))
}

// fileBlob is a blob that is a file of this machine: the target's filesystem may be able to share its blocks.
type fileBlob interface{ File() *os.File }

// because adds why ctx ended to an error that may be no more than a consequence of it.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return errors.Join(cause, err)
	}
	return err
}

// begin prepares the disk, or finds that the earlier run finished it and only could not say so any more.
func (i *importing) begin(virtual int64) (done bool, err error) {
	i.Record.Report.Format, i.Record.Report.Virtual, i.size = i.note.Format, virtual, max(virtual, 0)
	limit, err := i.disk.Limit()
	if err != nil {
		return false, err
	}
	if err := sink.Fits(virtual, limit); err != nil {
		return false, err
	}
	if i.old == nil && i.used {
		return false, task.Errorf(task.SourceChanged, "%s cannot be gone on with (%s), and a guest has used what there is of it; "+
			"bring back the source as it was, or delete the volume and its machine's changes with it", i.info.Name, i.Record.Remarks())
	}
	if i.old == nil {
		err = i.disk.Begin(virtual, false)
	} else {
		err = i.disk.Begin(virtual, true)
		i.Record.Report.Resumed = i.old.Mark
		i.Record.Reached(i.old.Mark)
	}
	if errors.Is(err, sink.ErrFinished) {
		i.Record.Report.Digest, i.Record.Report.Virtual = i.Task.Checksum, i.disk.Size()
		return true, nil
	}
	if err == nil && virtual >= 0 {
		i.Record.Report.Virtual = i.disk.Size()
	}
	return false, err
}

// finish checks what was brought and makes it durable; or keeps what there is, if err says that it is not all. k is nil
// if this transfer cannot be continued.
func (i *importing) finish(err error, k *resume.Keeper) error {
	if err == nil && i.sum != nil {
		i.Record.Report.Digest = i.sum.Digest()
		err = i.sum.Check(i.info.Name)
	}
	if k != nil {
		err = errors.Join(err, k.End(err != nil))
	}
	if err != nil {
		return err
	}
	i.Record.SaySize(i.disk.Size(), i.Task.Target.Size)
	i.Record.Enter(task.Flushing, 0)
	if err := i.guest.Complete(); err != nil {
		return err
	}
	if err := i.disk.Finish(); err != nil {
		return fmt.Errorf("finish the disk: %w", err)
	}
	return nil
}

// keep starts writing notes. If the target itself fails, it calls fail. It returns nil if the transfer could not be continued from them.
func (i *importing) keep(claim func(*resume.Note) error, fail func(error)) *resume.Keeper {
	if !i.info.Ranged && !i.info.Resumes || i.info.Version == "" {
		return nil
	}
	k := &resume.Keeper{Disk: i.disk, Every: i.Every, Base: i.note, Claim: claim}
	k.Start(fail)
	return k
}
