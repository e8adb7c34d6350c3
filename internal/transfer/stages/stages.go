// Package stages writes what changed of a disk since the stage before over the copy of that stage, and keeps a note of the stage that a
// copy is at.
//
// It does not bring the first stage, which is a whole disk (package ingest does), nor does it know whether another stage follows.
package stages

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/progress"
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/sweep"
)

// A disk that is brought in stages has its name from the first stage on, and is changed in place by the others. A stage that was interrupted
// is written again from its beginning, which does no harm: what it wrote, it writes again. Beside a disk that is a file lies a note of the
// checkpoint it is at, so that a stage is never written over another disk than it was made for; a device has no room for one.

// note says which stage a disk is at.
type note struct {
	Claim      string `json:"claim"`
	Checkpoint string `json:"checkpoint"` // that the disk is at
	Virtual    int64  `json:"virtual"`    // the size of the disk there
	// Next is the checkpoint of a stage that was begun, and Places a digest of all ranges that it changes: another stage that changes
	// other ranges would leave data of the first.
	Next   string `json:"next,omitempty"`
	Places string `json:"places,omitempty"`
}

func noteFile(disk string) string {
	dir, base := filepath.Split(disk)
	return filepath.Join(dir, "."+base+".berth-stage")
}

// isDevice: the disk is a block device.
func isDevice(disk string) bool {
	info, err := os.Stat(disk)
	return err == nil && info.Mode()&fs.ModeDevice != 0
}

// read returns the note beside the disk of a task; nil: there is none, or it is of another claim.
func read(t task.Task) (*note, error) {
	if isDevice(t.Target.Path) {
		return nil, nil
	}
	p, err := os.ReadFile(noteFile(t.Target.Path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, task.Errorf(task.TargetFailed, "read which stage the disk is at: %w", err)
	}
	n := &note{}
	if json.Unmarshal(p, n) != nil || n.Claim != t.Claim {
		return nil, nil
	}
	return n, nil
}

// save writes the note beside the disk.
func (n note) save(disk string) error {
	if isDevice(disk) {
		return nil
	}
	p, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode the stage: %w", err)
	}
	if err := sink.Replace(noteFile(disk), p); err != nil {
		return task.Errorf(task.TargetFailed, "note which stage the disk is at: %w", err)
	}
	return nil
}

// Done notes that the stage of a task is on its disk, which has so many bytes then.
func Done(t task.Task, size int64) error {
	return note{Claim: t.Claim, Checkpoint: t.Checkpoint.Current, Virtual: size}.save(t.Target.Path)
}

// Apply writes what changed since the stage before over the disk. The caller closes blob.
func Apply(ctx context.Context, t task.Task, blob source.Blob, record *progress.Record) error {
	info, s := blob.Info(), t.Checkpoint
	note, err := read(t)
	switch {
	case err != nil:
		return err
	case note != nil && note.Checkpoint == s.Current: // only the report was lost
		record.Report.Format, record.Report.Virtual = string(format.QCOW2), note.Virtual
		return nil
	case note == nil && !isDevice(t.Target.Path):
		return task.Errorf(task.BadTask, "nothing says that the disk is at checkpoint %q, which the stage %q was made on", s.Previous, s.Current)
	case note != nil && note.Checkpoint != s.Previous:
		return task.Errorf(task.BadTask, "the disk is at checkpoint %q, and the stage %q was made on %q", note.Checkpoint, s.Current, s.Previous)
	}
	at, err := source.NewReaderAt(ctx, blob)
	if err != nil {
		return task.Errorf(task.UnsupportedImage, "a stage is read in parts: %w", err)
	}
	layer, err := format.OpenLayer(at, info.Size)
	if err != nil {
		return fmt.Errorf("%s: %w", info.Name, err)
	}
	if name, has := layer.Below(); has && path.Base(name) != s.Previous {
		return task.Errorf(task.BadImage, "%s is an increment over %q, and the stage was to be one over %q; if it is, take the name out of it with: "+
			"qemu-img rebase -u -b '' FILE", info.Name, name, s.Previous)
	}
	disk, err := sink.OpenExisting(sink.OptionsFor(t.Target))
	if err != nil {
		return err
	}
	a := &applying{task: t, record: record, blob: blob, layer: layer, disk: disk, note: note}
	err = a.run(ctx)
	record.Report.Written = disk.Written()
	return errors.Join(err, disk.Close())
}

// applying is a stage on its way onto the disk.
type applying struct {
	task   task.Task
	record *progress.Record
	blob   source.Blob
	layer  *format.Layer
	disk   *sink.Existing
	note   *note // nil: the disk is a device
}

func (a *applying) run(ctx context.Context) error {
	info, size := a.blob.Info(), a.layer.Size()
	a.record.Report.Format, a.record.Report.Virtual = string(format.QCOW2), size
	a.record.Enter(task.Transferring, info.Size)
	if a.note != nil && size < a.note.Virtual {
		return task.Errorf(task.BadImage, "%s is of a disk of %d bytes, and the disk had %d at the stage before: a disk that became smaller has no stages",
			info.Name, size, a.note.Virtual)
	}
	if err := sink.Fits(size, max(a.disk.Size(), a.task.Target.Size)); err != nil {
		return err
	}
	if err := a.begin(ctx); err != nil {
		return err
	}
	if size > a.disk.Size() {
		if err := a.disk.Grow(size); err != nil {
			return err
		}
	}
	z := &zeroing{disk: a.disk}
	if err := a.layer.Parts(ctx, func(format.Extent) error { return nil }, z.add); err != nil {
		return err
	}
	if err := z.flush(); err != nil {
		return err
	}
	pass := &sweep.Pass{Blob: a.blob, Size: info.Size, Image: a.layer.Image(), Disk: a.disk, Meter: a.record.Meter}
	if err := pass.Start(ctx, nil); err != nil {
		return err
	}
	if err := pass.Run(ctx); err != nil {
		return err
	}
	a.record.Enter(task.Flushing, 0)
	if err := a.disk.Sync(); err != nil {
		return err
	}
	return Done(a.task, size)
}

// begin reads all tables, so that a damaged stage is refused before the disk is changed, and records the ranges that will change.
func (a *applying) begin(ctx context.Context) error {
	var places sum256
	err := a.layer.Parts(ctx, func(e format.Extent) error { return places.add(e.Guest, e.Size) }, places.add)
	if err != nil || a.note == nil {
		return err
	}
	next, now := *a.note, places.String()
	if next.Next != "" && next.Places != now {
		return task.Errorf(task.SourceChanged, "%s changes other places of the disk than when it was first read, and a part of it is written already; "+
			"bring back the file as it was, or delete the volume and begin with the first stage", a.blob.Info().Name)
	}
	next.Next, next.Places = a.task.Checkpoint.Current, now
	return next.save(a.task.Target.Path)
}

// zeroing gathers ranges that follow each other: one call for each cluster would be many.
type zeroing struct {
	disk  *sink.Existing
	at, n int64
}

func (z *zeroing) add(at, n int64) error {
	if at == z.at+z.n {
		z.n += n
		return nil
	}
	err := z.flush()
	z.at, z.n = at, n
	return err
}

func (z *zeroing) flush() error { return z.disk.Zero(z.at, z.n) }

// sum256 is a digest of places that come in any order: the sum of the digests of each.
type sum256 [4]uint64

func (s *sum256) add(at, n int64) error {
	var p [16]byte
	binary.BigEndian.PutUint64(p[:], uint64(at))
	binary.BigEndian.PutUint64(p[8:], uint64(n))
	one := sha256.Sum256(p[:])
	for i := range s {
		s[i] += binary.BigEndian.Uint64(one[8*i:])
	}
	return nil
}

func (s *sum256) String() string {
	var p []byte
	for _, word := range s {
		p = binary.BigEndian.AppendUint64(p, word)
	}
	return hex.EncodeToString(p)
}
