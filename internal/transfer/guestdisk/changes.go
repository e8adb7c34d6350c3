package guestdisk

import (
	"context"
	"fmt"
	"slices"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/backup"
)

// findChanges reads the disks to find out what of them is to be written, if nobody has recorded it. If the parent cannot be read, that is all data.
func (j *Job) findChanges(ctx context.Context, parent *backup.Manifest, plan *backup.Plan) error {
	if !j.task.Compare {
		parent = nil // the sources know what changed
	}
	whole := slices.Clone(plan.Disks)
	err := j.scan(ctx, parent, plan.Disks)
	if parent == nil {
		return err
	}
	j.written.Compared, j.written.Lost = true, j.task.Lost
	if unreadable(err) {
		j.written = task.Written{Full: fmt.Sprintf("backup %s, which it was to be made on, cannot be read in the claim: %v", parent.Checkpoint, err)}
		plan.Parent, plan.Disks = "", whole
		return j.scan(ctx, nil, plan.Disks)
	}
	return err
}

// scan compares each disk with the parent, and looks for zeroes in what does not tell where it has data.
func (j *Job) scan(ctx context.Context, parent *backup.Manifest, disks []backup.Source) error {
	for i, s := range disks {
		var err error
		switch {
		case parent != nil && under(parent, s):
			below := backup.Which{Checkpoint: j.task.Parent, Disk: s.Name, Manifest: j.task.Proof}
			disks[i], err = backup.Compare(ctx, backup.InDirectory(j.task.Set), below, s)
		case j.devices[s.Name]:
			disks[i], err = backup.WithoutZeroes(ctx, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unreadable reports whether an error is one of the backup that a disk was compared with, and not of the disk.
func unreadable(err error) bool {
	return slices.ContainsFunc([]task.Reason{task.ChecksumMismatch, task.BadImage, task.UnsafeImage, task.UnsupportedImage, task.SourceTruncated,
		task.SourceNotFound, task.SourceDenied, task.SourceUnreachable, task.BadTask}, func(r task.Reason) bool { return task.Is(err, r) })
}
