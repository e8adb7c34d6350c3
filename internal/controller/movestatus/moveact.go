package movestatus

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// Migration is a migration as its status shows it.
type Migration struct {
	Migration *kubevirt.VirtualMachineInstanceMigration
	Source    *corev1.Pod        // nil: there is none
	Target    *corev1.Pod        // nil: there is none
	Said      launcherapi.Moving // by the source
	Begun     bool               // the source was told to send its guest
	Whole     bool               // the target is known to have all of the guest
}

// Write writes the status of a migration.
func (r *Reporter) Write(ctx context.Context, v Migration, row state.MigrationRow, detail string) error {
	old := v.Migration.Status
	text := row.Text(detail)
	succeeded, failed := row.Phase == kubevirt.MigrationSucceeded, row.Phase == kubevirt.MigrationFailed
	next := kubevirt.MigrationStatus{Phase: row.Phase, PhaseTransitionTimestamps: old.PhaseTransitionTimestamps, MigrationState: v.state(old.MigrationState),
		Conditions: r.Report.Conditions(old.Conditions, kubevirt.Condition{Type: "Ready", Status: report.Truth(succeeded), Reason: string(row.Reason), Message: text})}
	if next.SentBytes, next.TotalBytes = old.SentBytes, old.TotalBytes; v.Said.Total > 0 {
		next.SentBytes, next.TotalBytes = v.Said.Sent, v.Said.Total
	}
	now := metav1.NewTime(r.Clock.Now())
	if row.Phase != old.Phase {
		next.PhaseTransitionTimestamps = append(next.PhaseTransitionTimestamps,
			kubevirt.MigrationPhaseTransition{Phase: row.Phase, PhaseTransitionTimestamp: now})
	}
	at := next.MigrationState
	if v.Begun && at.StartTimestamp == nil {
		at.StartTimestamp = &now
	}
	if at.TargetNodeDomainReadyTimestamp == nil && (succeeded || v.Whole) {
		at.TargetNodeDomainReadyTimestamp, at.TargetNodeDomainDetected = &now, true
	}
	if v.Migration.DeletionTimestamp != nil {
		at.AbortRequested, at.AbortStatus = true, kubevirt.AbortInProgress
	}
	if succeeded || failed {
		at.EndTimestamp, at.Completed, at.Failed = &now, true, failed
		if failed {
			at.FailureReason = text
		}
		if at.AbortRequested {
			at.AbortStatus = map[bool]kubevirt.MigrationAbortStatus{true: kubevirt.AbortSucceeded, false: kubevirt.AbortFailed}[failed]
		}
	}
	said := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: report.Named(&v.Migration.ObjectMeta), Status: next}
	if equality.Semantic.DeepEqual(old, next) {
		return nil
	}
	if err := r.Cluster.ApplyStatus(ctx, said); err != nil {
		return err
	}
	if report.ReasonOf(old.Conditions) != report.ReasonOf(next.Conditions) {
		kind := corev1.EventTypeNormal
		if row.Warn {
			kind = corev1.EventTypeWarning
		}
		r.Cluster.Event(v.Migration, kind, string(row.Reason), text)
	}
	return nil
}

// state returns the migration's state for the status of the instance.
func (v Migration) state(old *kubevirt.MigrationState) *kubevirt.MigrationState {
	s := &kubevirt.MigrationState{}
	if old != nil {
		s = old.DeepCopy()
	}
	s.MigrationUID, s.Mode = v.Migration.UID, kubevirt.PreCopy
	if p := v.Source; p != nil {
		s.SourcePod, s.SourceNode = p.Name, p.Spec.NodeName
	}
	if p := v.Target; p != nil {
		if pod, node, ok := strings.Cut(p.Annotations[render.AnnFrom], " "); ok { // the source may be gone
			s.SourcePod, s.SourceNode = pod, node
		}
		s.TargetPod, s.TargetNode, s.TargetNodeAddress = p.Name, p.Spec.NodeName, p.Status.PodIP
	}
	for _, p := range []*corev1.Pod{v.Source, v.Target} {
		if o := launcherpod.Orders(p); o.ID == string(v.Migration.UID) && o.Limits != (launcherapi.MoveLimits{}) {
			s.MigrationConfiguration, s.MigrationPolicyName = configuration(o.Limits), nil
			if o.Policy != "" {
				s.MigrationPolicyName = &o.Policy
			}
		}
	}
	return s
}
