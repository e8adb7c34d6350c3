package cron

import (
	"context"
	"fmt"
	"maps"
	"time"

	schedule "github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/decide/cron"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// noted returns the recorded results of polls.
func (s *seen) noted() map[string]string {
	noted := map[string]string{}
	for _, key := range []string{annDigest, annPolled, annNext, annTrouble, annPod} {
		if value, ok := s.cron.Annotations[key]; ok {
			noted[key] = value
		}
	}
	return noted
}

// note returns the record with the result of the last poll.
func (s *seen) note() map[string]string {
	noted := s.noted()
	noted[annPod] = string(s.poll.UID)
	noted[annPolled] = s.now.UTC().Format(time.RFC3339)
	delete(noted, annTrouble)
	switch {
	case s.report == nil:
		noted[annTrouble] = "the poll ended without a report"
	case s.report.Digest == "":
		noted[annTrouble] = s.report.Detail
	default:
		noted[annDigest] = s.report.Digest
	}
	if when, err := schedule.ParseStandard(s.cron.Spec.Schedule); err == nil {
		noted[annNext] = nextPoll(when, s.now, noted[annTrouble] != "").UTC().Format(time.RFC3339)
	}
	return noted
}

// report writes what is recorded and the status, in one write, if either is new, and an event if the reason is.
func (r *Reconciler) report(ctx context.Context, s *seen, plan cron.Plan, noted map[string]string) error {
	old := s.cron.Status
	next := s.status(plan, noted)
	if equality.Semantic.DeepEqual(old, next) && maps.Equal(noted, s.noted()) {
		return nil
	}
	said := s.cron.DeepCopy()
	if said.Annotations == nil {
		said.Annotations = map[string]string{}
	}
	for key := range s.noted() {
		delete(said.Annotations, key)
	}
	maps.Copy(said.Annotations, noted)
	said.Status = next
	if err := r.cluster.Change(ctx, s.cron, said); err != nil {
		return err
	}
	if was := condition(old, cdiv1.DataImportCronUpToDate); was.Reason != string(plan.Say) {
		kind := corev1.EventTypeNormal
		switch plan.Say {
		case cron.Outdated, cron.AlreadyManaged, cron.Invalid:
			kind = corev1.EventTypeWarning
		case cron.NoDigest, cron.ImportProgressing, cron.UpToDate:
		}
		r.cluster.Event(s.cron, kind, string(plan.Say), condition(next, cdiv1.DataImportCronUpToDate).Message)
	}
	return nil
}

func (s *seen) status(plan cron.Plan, noted map[string]string) cdiv1.DataImportCronStatus {
	old := s.cron.Status
	next := cdiv1.DataImportCronStatus{
		SourceFormat: s.stored.form(), LastImportedPVC: old.LastImportedPVC,
		LastImportTimestamp: old.LastImportTimestamp, LastExecutionTimestamp: old.LastExecutionTimestamp,
	}
	if at, err := time.Parse(time.RFC3339, noted[annPolled]); err == nil {
		next.LastExecutionTimestamp = ptr.To(metav1.NewTime(at.Local()))
	}
	if s.current != nil || s.stored.current != nil {
		next.CurrentImports = []cdiv1.ImportStatus{{DataVolumeName: importName(s.cron, s.digest), Digest: s.digest}}
	}
	if plan.Say == cron.UpToDate {
		now := &cdiv1.DataVolumeSourcePVC{Namespace: s.cron.Namespace, Name: importName(s.cron, s.digest)}
		if old.LastImportedPVC == nil || *old.LastImportedPVC != *now {
			next.LastImportedPVC, next.LastImportTimestamp = now, ptr.To(metav1.NewTime(s.now).Rfc3339Copy())
		}
	}
	message := s.message(plan.Say, noted)
	next.Conditions = []cdiv1.DataImportCronCondition{
		s.condition(old, cdiv1.DataImportCronProgressing, s.progress()),
		s.condition(old, cdiv1.DataImportCronUpToDate, cdiv1.ConditionState{
			Status: truth(plan.Say == cron.UpToDate), Reason: string(plan.Say), Message: message,
		}),
	}
	return next
}

// progress returns the progress of the import that is under way, in CDI's words.
func (s *seen) progress() cdiv1.ConditionState {
	no := func(reason, message string) cdiv1.ConditionState {
		return cdiv1.ConditionState{Status: corev1.ConditionFalse, Reason: reason, Message: message}
	}
	if s.current == nil || s.wrong != nil {
		return no("NoImport", "No current import")
	}
	switch phase := s.current.Status.Phase; phase { //nolint:exhaustive // CDI has no words for the others
	case cdiv1.Succeeded:
		return no("NoImport", "No current import")
	case cdiv1.PhaseUnset, cdiv1.ImportScheduled:
		return no("ImportScheduled", "Import is scheduled")
	case cdiv1.ImportInProgress:
		return cdiv1.ConditionState{Status: corev1.ConditionTrue, Reason: "ImportProgressing", Message: "Import is progressing"}
	default:
		return no(string(phase), "Import DataVolume phase "+string(phase))
	}
}

func (s *seen) message(say cron.Reason, noted map[string]string) string {
	text := ""
	switch say {
	case cron.NoDigest:
		text = "No source digest"
	case cron.ImportProgressing:
		text = "Import is progressing"
		if s.current != nil && s.current.Status.Phase == cdiv1.Succeeded || s.stored.wanted && s.stored.current != nil {
			text = "Snapshot of imported data is progressing" + s.obstacle()
		}
	case cron.Outdated:
		text = "Source digest updated since last import"
		if s.current != nil && s.current.Status.Phase == cdiv1.Failed {
			text = fmt.Sprintf("Import of %s failed, see DataVolume %s; delete it to try again", s.digest, s.current.Name)
		}
	case cron.UpToDate:
		text = "Latest import is up to date"
	case cron.AlreadyManaged:
		return s.taken() + "; use another name in managedDataSource"
	case cron.Invalid:
		return s.wrong.Error()
	}
	if trouble := noted[annTrouble]; trouble != "" {
		text += "; the last poll failed: " + trouble
	}
	return text
}

// obstacle returns what the storage says about the snapshot; it tries again by itself.
func (s *seen) obstacle() string {
	if s.stored.current == nil {
		return ""
	}
	if text := volumesnapshot.Trouble(s.stored.current); text != "" {
		return ": " + text
	}
	return ""
}

// condition returns next with the times of the old condition of its type if nothing changed.
func (s *seen) condition(old cdiv1.DataImportCronStatus, kind cdiv1.DataImportCronConditionType, next cdiv1.ConditionState,
) cdiv1.DataImportCronCondition {
	now := metav1.NewTime(s.now).Rfc3339Copy()
	next.LastTransitionTime, next.LastHeartbeatTime = now, now
	if c := condition(old, kind); c.Status == next.Status {
		next.LastTransitionTime = c.LastTransitionTime
		if c.Reason == next.Reason && c.Message == next.Message {
			next.LastHeartbeatTime = c.LastHeartbeatTime
		}
	}
	return cdiv1.DataImportCronCondition{Type: kind, ConditionState: next}
}

func condition(status cdiv1.DataImportCronStatus, kind cdiv1.DataImportCronConditionType) cdiv1.ConditionState {
	for _, c := range status.Conditions {
		if c.Type == kind {
			return c.ConditionState
		}
	}
	return cdiv1.ConditionState{}
}

func truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}
