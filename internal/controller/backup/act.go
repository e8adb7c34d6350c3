package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/backup"
	"github.com/berth-vm/berth/internal/launcherapi"
)

func (r *Reconciler) act(ctx context.Context, a backup.Action, s *seen) error {
	switch a {
	case backup.Protect:
		return r.finalizers(ctx, s, append(slices.Clone(s.of.Finalizers), finalizer))
	case backup.LetGo:
		return r.letGo(ctx, s)
	case backup.Hold:
		return r.hold(ctx, s)
	case backup.Read:
		return r.read(ctx, s)
	case backup.Admit:
		return r.records.Admit(ctx, s.worker)
	case backup.Record:
		return r.record(ctx, s)
	case backup.Keep:
		_, err := r.end(s, true)
		return err
	case backup.GiveUp:
		m, err := r.end(s, false)
		if m.Broken != "" && s.working() == backup.Broken {
			s.detail = m.Broken[:min(len(m.Broken), mostWords)]
		}
		return err
	case backup.StopWorker:
		return r.cluster.Delete(ctx, s.worker)
	case backup.CleanUp:
		return r.cleanUp(ctx, s)
	}
	return fmt.Errorf("%s is not an action on a backup", a)
}

// end tells the launcher that has the guest that the backup is complete, or that it never will be. One that has no moment for it agrees to both.
func (r *Reconciler) end(s *seen, complete bool) (launcherapi.BackupMoment, error) {
	if s.launcher == nil || s.held != nil && s.held.Launcher != s.launcher.UID {
		return launcherapi.BackupMoment{}, nil // what was held went with the guest, or the claims were read
	}
	order := launcherapi.BackupOrder{ID: string(s.of.UID), End: true, Complete: complete}
	return r.guests.Order(s.launcher, Question{Launcher: s.launcher.UID, Backup: s.of.UID, End: true, Complete: complete},
		func(context.Context) (launcherapi.BackupOrder, error) { return order, nil }, r.comeBack(s.of))
}

func (r *Reconciler) letGo(ctx context.Context, s *seen) error {
	if !s.facts().Protected {
		return nil
	}
	return r.finalizers(ctx, s, slices.DeleteFunc(slices.Clone(s.of.Finalizers), func(f string) bool { return f == finalizer }))
}

func (r *Reconciler) finalizers(ctx context.Context, s *seen, all []string) error {
	next := s.of.DeepCopy()
	next.Finalizers = all
	err := r.cluster.Change(ctx, s.of, next)
	if apierrors.IsConflict(err) {
		return cluster.ErrStale
	}
	return client.IgnoreNotFound(err)
}

// cleanUp deletes what was made for the backup.
func (r *Reconciler) cleanUp(ctx context.Context, s *seen) error {
	if !s.facts().Protected {
		return nil // it was done before the finalizer was removed
	}
	if s.worker != nil && s.worker.DeletionTimestamp == nil {
		if err := r.cluster.Delete(ctx, s.worker); err != nil {
			return err
		}
	}
	made := []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.of.Namespace, Name: keysName(s.of)}}}
	if s.of.Spec.Pulled() {
		made = append(made, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.of.Namespace, Name: serverKeysName(s.of)}}) // the Service goes with the backup
	}
	for _, obj := range made {
		if err := r.cluster.Delete(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

// annCheckpoint is on a tracker: where its last backup is.
const annCheckpoint = "berth.dev/checkpoint"

// checkpoint is what a tracker's annotation says besides its status.
type checkpoint struct {
	Name string `json:"name"`
	// Claim is the UID of the claim that the backup is in, and Machine that of the machine it is of. Clients have fetched one without a claim.
	Claim   string `json:"claim"`
	Machine string `json:"machine"`
	// Manifest is the digest of the backup's manifest, which is one of everything below it.
	Manifest string `json:"manifest,omitempty"`
	// Since is the last checkpoint of a guest that ran: a launcher records what changed since that one. "": this is such a one.
	Since string `json:"since,omitempty"`
}

// recorded is the checkpoint that launchers record changes since. More changed since that one than since Name, never less.
func (c *checkpoint) recorded() string { return cmp.Or(c.Since, c.Name) }

func checkpointOf(t *backupv1.VirtualMachineBackupTracker) *checkpoint {
	var c checkpoint
	if t == nil || json.Unmarshal([]byte(t.Annotations[annCheckpoint]), &c) != nil || c.Name == "" {
		return nil
	}
	return &c
}

// record writes the checkpoint to the tracker. The launcher is told afterwards: until then it records changes since this checkpoint and since the one
// before, so that either can be the base of the next backup.
func (r *Reconciler) record(ctx context.Context, s *seen) error {
	if s.tracker == nil || s.vm == nil {
		return nil // there is none, or nobody wants it any more
	}
	next := checkpoint{Name: checkpointName(s.of), Machine: string(s.vm.UID)}
	if !s.of.Spec.Pulled() {
		next.Claim, next.Manifest = s.worker.Labels[labelClaim], s.report.Backup.Manifest
	}
	if last := checkpointOf(s.tracker); s.reads() && last != nil && last.Machine == next.Machine {
		if next.Since = last.recorded(); last.Name == next.Name { // this turn is a second one
			next.Since = last.Since
		}
	}
	text, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("write the checkpoint: %w", err)
	}
	if s.tracker.Annotations[annCheckpoint] != string(text) {
		if err := r.cluster.Annotate(ctx, s.tracker, annCheckpoint, string(text)); err != nil {
			return err
		}
	}
	if s.tracker.Latest() == checkpointName(s.of) {
		return nil
	}
	at := metav1.NewTime(s.held.Time.Truncate(time.Second))
	return r.cluster.ApplyStatus(ctx, &backupv1.VirtualMachineBackupTracker{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.tracker.Namespace, Name: s.tracker.Name, UID: s.tracker.UID},
		Status: &backupv1.VirtualMachineBackupTrackerStatus{LatestCheckpoint: &backupv1.BackupCheckpoint{
			Name: checkpointName(s.of), CreationTime: &at, Volumes: s.held.volumes()}},
	})
}

// volumes are the disks that are held, as clients know them.
func (h *held) volumes() []backupv1.BackupVolumeInfo {
	var out []backupv1.BackupVolumeInfo
	for _, d := range h.Disks {
		out = append(out, backupv1.BackupVolumeInfo{VolumeName: d.Volume, DiskTarget: d.Target})
	}
	return out
}
