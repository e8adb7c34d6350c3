package instance

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/evacuation"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/controller/volumeupdate"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// report writes the status of an instance.
func (r *Reconciler) report(ctx context.Context, s *observed.Instance, reason state.MachineReason, l evacuation.Leaving, u volumeupdate.Plan) error {
	row := report.Row(s, reason)
	old := s.Object.Status
	next := kubevirt.VirtualMachineInstanceStatus{
		Phase: row.Instance, Reason: string(row.Reason), PhaseTransitionTimestamps: old.PhaseTransitionTimestamps,
		Conditions: r.Report.Conditions(old.Conditions, slices.Concat([]kubevirt.Condition{
			{Type: "Ready", Status: report.Truth(row.Ready), Reason: string(row.Reason), Message: row.Message}},
			report.Shared(s), report.PausedCondition(s), l.Condition(), u.Condition())...),
		MigrationState: s.Migration, MigrationMethod: old.MigrationMethod, EvacuationNodeName: l.Node, MigratedVolumes: report.Migrated(s),
		ChangedBlockTracking: &kubevirt.ChangedBlockTrackingStatus{State: kubevirt.ChangedBlockTrackingEnabled},
	}
	if next.Phase == "" { // a leaving instance keeps the phase it had
		next.Phase = old.Phase
	}
	if p := s.Launcher; p != nil {
		next.NodeName = p.Spec.NodeName
		next.QOSClass = report.QOS(p)
		next.ActivePods, next.MigrationMethod = report.Active(s), report.Method(s)
		report.Describe(s, &next)
	}
	if s.Past != nil {
		next.NodeName = s.Past.Node
	}
	if next.Phase != old.Phase {
		next.PhaseTransitionTimestamps = append(next.PhaseTransitionTimestamps,
			kubevirt.PhaseTransition{Phase: next.Phase, PhaseTransitionTimestamp: metav1.NewTime(r.Clock.Now())})
	}
	for _, d := range s.Disks {
		next.VolumeStatus = append(next.VolumeStatus, report.DiskStatus(d))
	}
	next.VolumeStatus = report.WithCopies(s, next.VolumeStatus)
	for _, h := range s.Added {
		if h.Plan.Phase != "" && !render.IsKeep(h.Name) {
			next.VolumeStatus = append(next.VolumeStatus, report.AddedStatus(s, h))
		}
	}
	for _, name := range report.AwaitedVolumes(s) {
		next.VolumeStatus = append(next.VolumeStatus, report.AwaitedStatus(s, name))
	}
	report.DescribeVolumes(s, next.VolumeStatus)
	said := &kubevirt.VirtualMachineInstance{ObjectMeta: report.Named(&s.Object.ObjectMeta), Status: next}
	r.complain(s.Object, next.VolumeStatus)
	r.tellKept(s)
	return r.Report.Say(ctx, s.Object, said, equality.Semantic.DeepEqual(old, next), row, old.Reason != next.Reason)
}
