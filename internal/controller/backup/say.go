package backup

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	"github.com/berth-vm/berth/internal/controller/worker"
	"github.com/berth-vm/berth/internal/state"
)

// report writes the state of a backup. One that has ended stays as it is.
func (r *Reconciler) report(ctx context.Context, s *seen, reason state.BackupReason) (ctrl.Result, error) {
	if reason == state.BackupOver {
		return ctrl.Result{}, nil
	}
	row := state.OfBackup(reason)
	text := row.Text(r.detail(ctx, s, reason))
	old := ptr.Deref(s.of.Status, backupv1.VirtualMachineBackupStatus{})
	next := *old.DeepCopy()
	if s.held != nil {
		next.CheckpointName, next.IncludedVolumes = ptr.To(checkpointName(s.of)), s.held.volumes()
	}
	if s.of.Spec.Pulled() {
		s.offer(&next, reason)
	}
	if s.report != nil && s.report.Backup != nil {
		next.Type = backupv1.Full
		if s.report.Backup.Incremental {
			next.Type = backupv1.Incremental
		}
	}
	next.Conditions = r.conditions(s, old.Conditions, row, text)
	result := ctrl.Result{RequeueAfter: look}
	if equality.Semantic.DeepEqual(old, next) {
		return result, nil
	}
	if s.of.DeletionTimestamp != nil && !s.facts().Protected {
		return ctrl.Result{}, nil // it is gone
	}
	err := r.cluster.ApplyStatus(ctx, &backupv1.VirtualMachineBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.of.Namespace, Name: s.of.Name, UID: s.of.UID}, Status: &next})
	if err != nil {
		return ctrl.Result{}, err
	}
	kind := corev1.EventTypeNormal
	if row.Warn {
		kind = corev1.EventTypeWarning
	}
	if reason != state.BackupWriting || !said(old.Conditions, row) { // its numbers are for the status alone
		r.cluster.Turn(s.of, kind, string(row.Reason), text)
	}
	return result, nil
}

// said reports whether the condition of a row is there already.
func said(old []metav1.Condition, row state.BackupRow) bool {
	for _, c := range old {
		if c.Type == row.Condition && c.Reason == row.Upstream && strings.HasPrefix(c.Message, row.Text("")) {
			return true
		}
	}
	return false
}

// conditions returns those that clients of the group know, with the time of those that did not change. Only what happened is there: a backup that
// goes on has neither Complete nor Failed.
func (r *Reconciler) conditions(s *seen, old []metav1.Condition, row state.BackupRow, text string) []metav1.Condition {
	upstream := row.Upstream
	if row.Reason == state.BackupDone && s.held.Unquiesced != "" {
		upstream = backupv1.ReasonCompletedWithWarning
	}
	next := []metav1.Condition{{Type: row.Condition, Status: metav1.ConditionTrue, Reason: upstream, Message: text}}
	if row.Condition != backupv1.ConditionProgressing {
		next = append(next, metav1.Condition{Type: backupv1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: upstream, Message: text})
	}
	if s.held != nil {
		next = append(next, s.quiesced())
	}
	for i := range next {
		c := &next[i]
		c.LastTransitionTime = metav1.NewTime(r.clock.Now()).Rfc3339Copy()
		for _, was := range old {
			if was.Type == c.Type && was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
	return next
}

// quiesced says whether the guest's filesystems were frozen for the moment.
func (s *seen) quiesced() metav1.Condition {
	c := metav1.Condition{Type: backupv1.ConditionQuiesced, Status: metav1.ConditionFalse}
	switch {
	case s.reads():
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, backupv1.ReasonQuiesceSucceeded, "the machine did not run: nothing wrote to its disks"
	case s.held.Quiesced:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, backupv1.ReasonQuiesceSucceeded, "the guest's agent froze its filesystems for the moment of the backup"
	case s.of.Spec.SkipQuiesce:
		c.Reason, c.Message = backupv1.ReasonQuiesceSkipped, "skipQuiesce is set: the disks are as after a loss of power"
	default:
		c.Reason = backupv1.ReasonQuiesceFailed
		c.Message = fmt.Sprintf("the guest's filesystems were not frozen, so the disks are as after a loss of power: %s", s.held.Unquiesced)
	}
	return c
}

// detail returns the value of {detail} in a row.
func (r *Reconciler) detail(ctx context.Context, s *seen, reason state.BackupReason) string {
	switch reason {
	case state.BackupUnfit:
		if s.isDisk(s.of.Spec.Claim()) {
			return "PersistentVolumeClaim " + s.of.Spec.Claim() + ", which has a disk of the machine"
		}
		return "PersistentVolumeClaim " + s.of.Spec.Claim()
	case state.BackupNoClaim, state.BackupTargetLost:
		return "PersistentVolumeClaim " + s.of.Spec.Claim()
	case state.BackupTargetInUse:
		return fmt.Sprintf("PersistentVolumeClaim %s: %s", s.of.Spec.Claim(), s.user)
	case state.BackupStarting, state.BackupPreparing, state.BackupLate:
		if s.worker == nil {
			return ""
		}
		return cmp.Or(trouble(s.worker), worker.Trouble(ctx, r.live, s.worker, s.now), s.user)
	case state.BackupWriting:
		if p := r.progress.Progress(ctx, s.worker); p != nil && p.Done > 0 {
			return fmt.Sprintf("%d MiB were read", p.Done>>20)
		}
		return ""
	case state.BackupHolding, state.BackupReading, state.BackupAborting:
		return ""
	case state.BackupUnread, state.BackupSourceInUse:
		return s.unread
	case state.BackupServing:
		return s.offered()
	case state.BackupExpired:
		return s.of.Spec.TTL().String()
	case state.BackupDone:
		if s.of.Spec.Pulled() {
			return s.what()
		}
		return s.written()
	case state.BackupSourceLost, state.BackupFailed:
		if s.report != nil && s.report.Detail != "" && !s.says() {
			return s.report.Detail
		}
	case state.BackupOver, state.BackupOvertaken, state.BackupServerLost, state.BackupNoTracker, state.BackupNoMachine, state.BackupUnsteady, state.BackupNothing, state.BackupTurn:
	}
	return s.detail
}

// says reports whether a launcher has said more than the worker could know.
func (s *seen) says() bool { return s.detail != "" && !strings.HasPrefix(s.detail, "VirtualMachine") }

// written says what a complete backup has.
func (s *seen) written() string {
	b := s.report.Backup
	what := "all data"
	switch {
	case b.Lost != "":
		what = "what differs from the backup before; all was compared with it, because " + b.Lost
	case b.Compared:
		what = "what differs from the backup before"
	case b.Incremental:
		what = "what changed since the backup before"
	case b.Full != "":
		what = "all data, because " + b.Full
	}
	return fmt.Sprintf("%s; %d bytes were written for disks of %d bytes", what, s.report.Written, s.report.Virtual)
}
