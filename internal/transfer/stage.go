package transfer

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
	"github.com/berth-vm/berth/internal/transfer/sink"
	"github.com/berth-vm/berth/internal/transfer/source"
)

// A disk that is brought in stages has its name from the first stage on, and is changed in place by the others. A stage that was interrupted
// is written again from its beginning, which does no harm: what it wrote, it writes again. Beside a disk that is a file lies a note of the
// checkpoint it is at, so that a stage is never written over another disk than it was made for; a device has no room for one.

// stageNote is the note.
type stageNote struct {
	Claim      string `json:"claim"`
	Checkpoint string `json:"checkpoint"` // that the disk is at
	Virtual    int64  `json:"virtual"`    // the size of the disk there
	// Next is the checkpoint of a stage that was begun, and Places a digest of all ranges that it changes: another stage that changes
	// other ranges would leave data of the first.
	Next   string `json:"next,omitempty"`
	Places string `json:"places,omitempty"`
}

func (t *Transfer) stageFile() string {
	dir, base := filepath.Split(t.task.Target.Path)
	return filepath.Join(dir, "."+base+".berth-stage")
}

// onDevice: the disk is a block device.
func (t *Transfer) onDevice() bool {
	info, err := os.Stat(t.task.Target.Path)
	return err == nil && info.Mode()&fs.ModeDevice != 0
}

// readStage returns the note beside the disk; nil: there is none, or it is of another claim.
func (t *Transfer) readStage() (*stageNote, error) {
	if t.onDevice() {
		return nil, nil
	}
	p, err := os.ReadFile(t.stageFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, task.Errorf(task.TargetFailed, "read which stage the disk is at: %w", err)
	}
	n := &stageNote{}
	if json.Unmarshal(p, n) != nil || n.Claim != t.task.Claim {
		return nil, nil
	}
	return n, nil
}

// noteStage notes it beside the disk.
func (t *Transfer) noteStage(n stageNote) error {
	if t.onDevice() {
		return nil
	}
	p, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode the stage: %w", err)
	}
	if err := sink.Replace(t.stageFile(), p); err != nil {
		return task.Errorf(task.TargetFailed, "note which stage the disk is at: %w", err)
	}
	return nil
}

// stage writes what changed since the stage before over the disk.
func (t *Transfer) stage(ctx context.Context, blob source.Blob) error {
	info, s := blob.Info(), t.task.Checkpoint
	note, err := t.readStage()
	switch {
	case err != nil:
		return err
	case note != nil && note.Checkpoint == s.Current: // only the report was lost
		t.report.Format, t.report.Virtual = string(format.QCOW2), note.Virtual
		return nil
	case note == nil && !t.onDevice():
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
	disk, err := sink.OpenExisting(t.options())
	if err != nil {
		return err
	}
	a := &applying{Transfer: t, blob: blob, layer: layer, disk: disk, note: note}
	err = a.run(ctx)
	t.report.Written = disk.Written()
	return errors.Join(err, disk.Close())
}

// applying is a stage on its way onto the disk.
type applying struct {
	*Transfer
	blob  source.Blob
	layer *format.Layer
	disk  *sink.Existing
	note  *stageNote // nil: the disk is a device
}

func (a *applying) run(ctx context.Context) error {
	info, size := a.blob.Info(), a.layer.Size()
	a.report.Format, a.report.Virtual = string(format.QCOW2), size
	a.meter.enter(task.Transferring, info.Size)
	if a.note != nil && size < a.note.Virtual {
		return task.Errorf(task.BadImage, "%s is of a disk of %d bytes, and the disk had %d at the stage before: a disk that became smaller has no stages",
			info.Name, size, a.note.Virtual)
	}
	if err := fits(size, max(a.disk.Size(), a.task.Target.Size)); err != nil {
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
	s := &sweep{blob: a.blob, size: info.Size, image: a.layer.Image(), disk: a.disk, meter: a.meter}
	if err := s.start(ctx, nil); err != nil {
		return err
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	a.meter.enter(task.Flushing, 0)
	if err := a.disk.Sync(); err != nil {
		return err
	}
	return a.noteStage(stageNote{Claim: a.task.Claim, Checkpoint: a.task.Checkpoint.Current, Virtual: size})
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
	return a.noteStage(next)
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
