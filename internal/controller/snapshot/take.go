package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/decide/snapshot"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// Reconcile brings one snapshot a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	of, err := cluster.Get[snapshotv1.VirtualMachineSnapshot](ctx, r.live, req.Namespace, req.Name)
	if err != nil || of == nil || of.DeletionTimestamp != nil {
		return ctrl.Result{}, err // a guest that is frozen for one that was deleted goes on by itself
	}
	s, err := r.read().Observe(ctx, of)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := s.Facts()
	plan := snapshot.Take(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		err := r.act(ctx, a, s)
		if errors.Is(err, probe.ErrNoAnswerYet) {
			break // the guest's answer brings it back
		}
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	return r.report(ctx, s, plan.State)
}

// comeBack has the snapshot checked again.
func (r *Reconciler) comeBack(of *snapshotv1.VirtualMachineSnapshot) func() {
	return func() { r.Answered <- event.GenericEvent{Object: of} }
}

func (r *Reconciler) act(ctx context.Context, a snapshot.Action, s *snapshotcontent.Snapshot) error {
	switch a {
	case snapshot.Record:
		return r.record(ctx, s)
	case snapshot.Freeze:
		asked, err := r.guest.Freeze(s.Launcher, s.Of.UID, r.comeBack(s.Of))
		if err != nil {
			return err
		}
		if asked {
			return r.mark(ctx, s, snapshotcontent.QuietFrozen)
		}
		return r.mark(ctx, s, snapshotcontent.QuietAgentless)
	case snapshot.Shoot:
		return r.takeVolumes(ctx, s)
	case snapshot.Thaw:
		held, err := r.guest.Thaw(s.Launcher, s.Of.UID, r.comeBack(s.Of))
		if err != nil {
			return err
		}
		if held {
			return r.mark(ctx, s, snapshotcontent.QuietThawed)
		}
		return r.mark(ctx, s, snapshotcontent.QuietLate)
	case snapshot.Finish:
		return r.finish(ctx, s)
	case snapshot.MakeMachine, snapshot.StopMachine, snapshot.Guard, snapshot.MakeVolumes, snapshot.Place, snapshot.Commit, snapshot.DropClaims,
		snapshot.MakeClaims, snapshot.Give, snapshot.ChangeBack, snapshot.CleanUp:
	}
	return fmt.Errorf("%s is not an action on a snapshot", a)
}

// record writes down the machine, its claims, and what their snapshots will be called.
func (r *Reconciler) record(ctx context.Context, s *snapshotcontent.Snapshot) error {
	c := &snapshotv1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: snapshotcontent.ContentName(s.Of), Namespace: s.Of.Namespace},
		Spec: snapshotv1.VirtualMachineSnapshotContentSpec{
			VirtualMachineSnapshotName: ptr.To(s.Of.Name),
			Source: snapshotv1.SourceSpec{VirtualMachine: &snapshotv1.VirtualMachine{
				ObjectMeta: metav1.ObjectMeta{
					Name: s.Machine.Name, Namespace: s.Machine.Namespace, UID: s.Machine.UID,
					Labels: s.Machine.Labels, Annotations: s.Machine.Annotations,
				},
				Spec: s.Machine.Spec,
			}},
		},
	}
	if len(s.Left) > 0 {
		c.Annotations = map[string]string{snapshotcontent.AnnLeft: strings.Join(s.Left, "\n")}
	}
	if p := s.Of.Spec.DeletionPolicy; p == nil || *p == snapshotv1.DeleteContent {
		c.OwnerReferences = []metav1.OwnerReference{owner(s.Of, "VirtualMachineSnapshot")}
	}
	for _, p := range s.Parts {
		c.Spec.VolumeBackups = append(c.Spec.VolumeBackups, snapshotv1.VolumeBackup{
			VolumeName: p.Volume, PersistentVolumeClaim: p.Claim, VolumeSnapshotName: ptr.To(p.Name)})
	}
	if err := r.cluster.Create(ctx, c); err != nil {
		return err
	}
	r.cluster.Event(s.Of, corev1.EventTypeNormal, "SuccessfulVirtualMachineSnapshotContentCreate", "Successfully created VirtualMachineSnapshotContent "+c.Name)
	return nil
}

// takeVolumes makes the VolumeSnapshots that are not there.
func (r *Reconciler) takeVolumes(ctx context.Context, s *snapshotcontent.Snapshot) error {
	for _, p := range s.Parts {
		if p.Taken != nil {
			continue
		}
		of := p.Claim.ObjectMeta.Name
		if other, err := r.read().Replacement(ctx, s.Of.Namespace, of); err != nil {
			return err
		} else if other != nil {
			of = other.Name
		}
		taken := volumesnapshot.New(s.Of.Namespace, p.Name, p.Class, of)
		taken.Labels = map[string]string{snapshotcontent.LabelSourceName: s.Content.Spec.Source.VirtualMachine.ObjectMeta.Name, snapshotcontent.LabelSourceNamespace: s.Of.Namespace}
		taken.OwnerReferences = []metav1.OwnerReference{owner(s.Content, "VirtualMachineSnapshotContent")}
		if err := r.cluster.Create(ctx, taken); err != nil {
			return err
		}
		r.cluster.Event(s.Of, corev1.EventTypeNormal, "SuccessfulVolumeSnapshotCreate", "Successfully created VolumeSnapshot "+p.Name)
	}
	return nil
}

func (r *Reconciler) mark(ctx context.Context, s *snapshotcontent.Snapshot, quiet string) error {
	s.Content = s.Content.DeepCopy()
	if s.Content.Annotations == nil {
		s.Content.Annotations = map[string]string{}
	}
	s.Content.Annotations[snapshotcontent.AnnQuiet] = quiet
	return r.cluster.Mark(ctx, s.Content, cluster.Marks{Annotations: map[string]string{snapshotcontent.AnnQuiet: quiet}})
}

// finish records on the content that it is complete: from then on it is never taken again.
func (r *Reconciler) finish(ctx context.Context, s *snapshotcontent.Snapshot) error {
	next := snapshotv1.VirtualMachineSnapshotContentStatus{ReadyToUse: ptr.To(true), CreationTime: s.Moment()}
	for _, p := range s.Parts {
		next.VolumeSnapshotStatus = append(next.VolumeSnapshotStatus, snapshotv1.VolumeSnapshotStatus{
			VolumeSnapshotName: p.Name, ReadyToUse: ptr.To(true), CreationTime: p.Moment()})
	}
	s.Content = s.Content.DeepCopy()
	s.Content.Status = next
	return r.cluster.ApplyStatus(ctx, &snapshotv1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Content.Namespace, Name: s.Content.Name, UID: s.Content.UID}, Status: next})
}
