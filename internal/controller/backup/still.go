package backup

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/claimusers"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/decide/backup"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
)

// A machine that does not run is backed up from its claims. The worker is recorded as a holder of their disks that only reads, so no launcher and no
// worker of Berth writes meanwhile; the record goes by what the disks are, not by names. Pods of others are in no record: they are looked for before
// the worker is made, and once more before the backup is said to be complete.

// reading is how the worker is recorded as a holder of the disks that it reads.
var reading = accessv1.Holder{Mode: accessv1.ReadShared, Use: accessv1.UseBackUp}

// disk is a disk of a machine that does not run.
type disk struct {
	volume string
	claim  *corev1.PersistentVolumeClaim
}

// reads reports whether the worker reads the claims of a machine that does not run.
func (s *seen) reads() bool { return s.held != nil && s.held.Launcher == "" && s.held.Moment != "" }

// starts reports whether the machine is not known to be stopped.
func (s *seen) starts() bool {
	return s.instance != nil && s.machine != backup.Stopped && s.machine != backup.Unread && s.machine != backup.DiskUsed
}

// observeClaims reads the claims of the disks of a machine that does not run, and notes why they cannot be read from.
func (r *Reconciler) observeClaims(ctx context.Context, s *seen) error {
	if s.machine != backup.Stopped {
		return r.observeOthers(ctx, s)
	}
	for _, v := range observed.NewInstance(s.vm).Spec.Volumes {
		name, _ := render.ClaimOf(v)
		if !s.backsUp(v.Name) {
			continue
		}
		claim, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, s.of.Namespace, name)
		if err != nil {
			return err
		}
		if claim == nil || claim.DeletionTimestamp != nil {
			s.cannot(backup.Unread, fmt.Sprintf("there is no PersistentVolumeClaim %s", name))
			continue
		}
		s.stopped = append(s.stopped, disk{v.Name, claim})
		if err := r.observeClaim(ctx, s, claim); err != nil {
			return err
		}
	}
	return r.observeOthers(ctx, s)
}

func (s *seen) backsUp(volume string) bool {
	for _, v := range s.volumes {
		if v == volume {
			return true
		}
	}
	return false
}

// cannot notes why the disks cannot be read; the first counts.
func (s *seen) cannot(m backup.Machine, why string) {
	if s.machine == backup.Stopped {
		s.machine, s.unread = m, why
	}
}

// observeClaim notes why a claim cannot be read from.
func (r *Reconciler) observeClaim(ctx context.Context, s *seen, c *corev1.PersistentVolumeClaim) error {
	data, err := replacedclaim.Data(ctx, r.live, c)
	if err != nil {
		return err
	}
	proof, lacks := clonesource.Complete(c)
	switch {
	case proof == clonesource.Unproven:
		s.cannot(backup.Unread, fmt.Sprintf("PersistentVolumeClaim %s: %s", c.Name, lacks))
		return nil
	case data.Place != replacedclaim.Here:
		s.cannot(backup.Unread, data.Why)
		return nil
	}
	writer, err := r.records.Writer(ctx, c, reading, s.worker)
	if writer != "" {
		s.cannot(backup.DiskUsed, writer)
	}
	return err
}

// observeOthers finds out whether a pod that is none of Berth's wrote to a disk while the worker read it. Those of Berth are in the records.
func (r *Reconciler) observeOthers(ctx context.Context, s *seen) error {
	if !s.reads() || s.report == nil || s.report.Outcome != task.Done {
		return nil
	}
	for _, v := range s.worker.Spec.Volumes {
		if v.PersistentVolumeClaim == nil || !render.OnlyReads(s.worker, v.PersistentVolumeClaim.ClaimName) {
			continue
		}
		claim, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, s.of.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil || claim == nil {
			return err
		}
		wrote, err := claimusers.Since(ctx, r.reader, r.live, claim, s.worker.CreationTimestamp.Time)
		if err != nil {
			return err
		}
		for _, p := range wrote {
			held, err := r.records.HolderOf(ctx, r.live, claim, p.UID)
			if err != nil {
				return err
			}
			if held != nil || p.Labels[render.LabelMachine] != "" || p.Labels[render.LabelApp] == render.App {
				continue
			}
			s.report = &task.Report{Outcome: task.Fatal, Reason: task.SourceChanged, Detail: fmt.Sprintf(
				"pod %s used PersistentVolumeClaim %s while it was read: directory %s of the claim is of no moment", p.Name, claim.Name, checkpointName(s.of))}
			return nil
		}
	}
	return nil
}

// read makes a worker that reads the disks from their claims. It is begun from the start if it is killed: the machine may have run in between.
func (r *Reconciler) read(ctx context.Context, s *seen) error {
	// A stale cache without the worker would lead to another moment than the worker's.
	now, err := cluster.Owned[corev1.Pod](ctx, r.live, s.of.UID, s.of.Namespace, render.BackupWorker(s.of.Name))
	if err != nil {
		return err
	} else if now != nil {
		return cluster.ErrStale
	}
	h := held{BackupMoment: launcherapi.BackupMoment{Moment: rand.Text(), Time: s.now.UTC()}}
	b := render.Backup{Disks: map[string]render.Disk{}}
	for _, d := range s.stopped {
		size := render.Size(d.claim)
		h.Disks = append(h.Disks, launcherapi.BackupDisk{Volume: d.volume, Size: size.Value()})
		block := ptr.Deref(d.claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
		b.Disks[d.volume] = render.Disk{Claim: d.claim.Name, Block: block}
	}
	if s.of.Spec.Pulled() {
		h.Full = "the machine does not run, so nothing recorded what changed"
		return r.startServer(ctx, s, h, b)
	}
	s.compare(&b.Task, "")
	return r.makeWorker(ctx, s, h, b)
}

// compare has a worker find out by comparing what changed since the last backup, because there is no record of it. lost says why, if one was asked for.
func (s *seen) compare(t *task.BackUp, lost string) {
	last := checkpointOf(s.tracker)
	if t.Full = s.full(); t.Full == "" && last != nil {
		t.Compare, t.Lost, t.Parent, t.Proof = true, lost, last.Name, last.Manifest
	}
}
