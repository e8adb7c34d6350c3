package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/encode"
)

// Plan is a backup that is to be written.
type Plan struct {
	Checkpoint string
	// Parent is the backup that increments are made on; empty: all disks are written as a whole.
	Parent  string
	Created time.Time
	Machine json.RawMessage
	// Moment names what the disks hold: a later Begin with the same one continues what this one wrote. "": nothing is continued.
	Moment string
	Disks  []Source
	// Settled is asked when all disks were read, before the backup gets its name: an error is one of the backup. It may be nil.
	Settled func() error
}

// Source is a disk at one moment.
type Source struct {
	Name string
	encode.Disk
	// Changed says where in [from, to) the disk may differ from what it was at the parent; nil: it is written as a whole.
	Changed func(ctx context.Context, from, to int64) ([][2]int64, error)
}

// planFile holds what is being written, in the directory of a backup that is not complete.
const planFile = "plan.json"

// granularity is the size of the clusters that are written.
const granularity = 64 << 10

// Write writes a backup into the set in dir. If it returns an error there is no such backup, and those before are as they were;
// if the error is not that the set is full or that a disk changed, what was written is kept, and Write continues it if it is called again for the same
// moment.
func Write(ctx context.Context, dir string, p Plan) (*Manifest, error) {
	w := &writer{plan: p, dir: dir, part: filepath.Join(dir, "."+p.Checkpoint+partSuffix)}
	err := w.write(ctx)
	if err == nil {
		return w.manifest, nil
	}
	if task.Is(err, task.DoesNotFit) || task.Is(err, task.SourceChanged) {
		err = errors.Join(err, failed("remove what was written", os.RemoveAll(w.part)))
	}
	return nil, fmt.Errorf("write backup %s: %w", p.Checkpoint, err)
}

type writer struct {
	plan      Plan
	dir, part string
	manifest  *Manifest
	parent    *Manifest // nil: there is none
}

func (w *writer) write(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	if err := w.takeUp(); err != nil {
		return err
	}
	for _, s := range w.plan.Disks {
		d, err := w.disk(ctx, s)
		if err != nil {
			return fmt.Errorf("disk %s: %w", s.Name, err)
		}
		w.manifest.Disks = append(w.manifest.Disks, d)
	}
	if w.plan.Settled != nil {
		if err := w.plan.Settled(); err != nil {
			return err
		}
	}
	return w.commit()
}

// begin finds out what the backup lies over, and refuses what could not be read again.
func (w *writer) begin(ctx context.Context) error {
	p := w.plan
	w.manifest = &Manifest{Version: Version, Checkpoint: p.Checkpoint, Created: p.Created.UTC().Truncate(time.Second), Machine: p.Machine}
	if !names.MatchString(p.Checkpoint) {
		return task.Errorf(task.BadTask, "%q is no name of a backup: want letters, digits, dots, dashes and underscores", p.Checkpoint)
	}
	if _, err := os.Lstat(filepath.Join(w.dir, p.Checkpoint)); !errors.Is(err, fs.ErrNotExist) {
		return task.Errorf(task.BadTask, "there is a backup of that name already, or its directory cannot be read (%v)", err)
	}
	if p.Parent != "" {
		parent, is, err := readManifest(ctx, InDirectory(w.dir), p.Parent, "")
		if err != nil {
			return fmt.Errorf("it was to be made on backup %s: %w", p.Parent, err)
		}
		w.parent, w.manifest.Parent = parent, &Parent{Checkpoint: p.Parent, Manifest: is}
	}
	for _, s := range p.Disks {
		if s.Changed == nil {
			continue
		}
		if w.parent == nil {
			return task.Errorf(task.BadTask, "an increment of disk %s was asked for without a parent", s.Name)
		}
		below, err := w.parent.disk(s.Name)
		if err != nil {
			return err
		}
		if below.Size > s.Size {
			return task.Errorf(task.BadTask, "disk %s had %d bytes in backup %s and has %d now: a disk that became smaller has no increments", s.Name,
				below.Size, p.Parent, s.Size)
		}
	}
	return nil
}

// takeUp makes the directory of a backup that is being written, or takes up one that was left for the same moment.
func (w *writer) takeUp() error {
	plan, err := json.Marshal(struct {
		Moment string
		Parent *Parent
	}{w.plan.Moment, w.manifest.Parent})
	if err != nil {
		return fmt.Errorf("encode the plan: %w", err)
	}
	was, err := os.ReadFile(filepath.Join(w.part, planFile))
	if err == nil && w.plan.Moment != "" && string(was) == string(plan) {
		return nil
	}
	if err := os.RemoveAll(w.part); err != nil {
		return failed("remove what an earlier try left", err)
	}
	if err := os.MkdirAll(w.part, 0o770); err != nil {
		return failed("make its directory", err)
	}
	return w.put(planFile, plan)
}

// put writes a small file and makes it durable.
func (w *writer) put(name string, p []byte) error {
	f, err := os.Create(filepath.Join(w.part, name))
	if err == nil {
		_, err = f.Write(p)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	return failed("write "+name, err)
}

// commit gives the backup its name, after all of it is on stable storage.
func (w *writer) commit() error {
	text, err := json.MarshalIndent(w.manifest, "", " ")
	if err != nil {
		return task.Errorf(task.BadTask, "encode the manifest: %w", err)
	}
	if len(text) > maxManifest {
		return task.Errorf(task.BadTask, "the manifest has %d bytes, at most %d are possible", len(text), maxManifest)
	}
	if _, err := Parse(text); err != nil {
		return err
	}
	if err := w.put(ManifestFile, append(text, '\n')); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(w.part, planFile)); err != nil {
		return failed("remove the plan", err)
	}
	if err := syncDir(w.part); err != nil {
		return err
	}
	if err := os.Rename(w.part, filepath.Join(w.dir, w.plan.Checkpoint)); err != nil {
		return failed("give it its name", err)
	}
	return syncDir(w.dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return failed("flush its directory", err)
	}
	defer d.Close() // opened for reading
	return failed("flush its directory", d.Sync())
}
