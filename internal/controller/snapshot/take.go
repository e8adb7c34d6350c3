package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/decide/snapshot"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// What is recorded on a content besides what its spec says.
const (
	annQuiet         = "berth.dev/quiet"          // what became of the guest while its volumes were cut
	annLeft          = "berth.dev/left-out"       // volumes that are in no snapshot, a line each
	annSnapshotClass = "berth.dev/snapshot-class" // on a claim in it: what to take its snapshot with

	// Upstream's labels of a VolumeSnapshot: the machine that it has a disk of.
	labelSourceName      = "snapshot.kubevirt.io/source-vm-name"
	labelSourceNamespace = "snapshot.kubevirt.io/source-vm-namespace"

	quietFrozen    = "frozen"
	quietAgentless = "agentless"
	quietThawed    = "thawed"
	quietLate      = "late" // it had gone on by itself when it was to be thawed
)

// reconcileSnapshot brings one snapshot a step further.
func (r *Reconciler) reconcileSnapshot(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	of, err := cluster.Get[snapshotv1.VirtualMachineSnapshot](ctx, r.live, req.Namespace, req.Name)
	if err != nil || of == nil || of.DeletionTimestamp != nil {
		return ctrl.Result{}, err // a guest that is frozen for one that was deleted goes on by itself
	}
	s, err := r.observe(ctx, of)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := s.facts()
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
	return r.reportSnapshot(ctx, s, plan.State)
}

// comeBack has the snapshot checked again.
func (r *Reconciler) comeBack(of *snapshotv1.VirtualMachineSnapshot) func() {
	return func() { r.answered <- event.GenericEvent{Object: of} }
}

func (r *Reconciler) act(ctx context.Context, a snapshot.Action, s *observedSnapshot) error {
	switch a {
	case snapshot.Record:
		return r.record(ctx, s)
	case snapshot.Freeze:
		asked, err := r.guest.Freeze(s.launcher, s.of.UID, r.comeBack(s.of))
		if err != nil {
			return err
		}
		if asked {
			return r.mark(ctx, s, quietFrozen)
		}
		return r.mark(ctx, s, quietAgentless)
	case snapshot.Shoot:
		return r.shoot(ctx, s)
	case snapshot.Thaw:
		held, err := r.guest.Thaw(s.launcher, s.of.UID, r.comeBack(s.of))
		if err != nil {
			return err
		}
		if held {
			return r.mark(ctx, s, quietThawed)
		}
		return r.mark(ctx, s, quietLate)
	case snapshot.Finish:
		return r.finish(ctx, s)
	case snapshot.MakeMachine, snapshot.StopMachine, snapshot.Guard, snapshot.MakeVolumes, snapshot.Place, snapshot.Commit, snapshot.DropClaims,
		snapshot.MakeClaims, snapshot.Give, snapshot.ChangeBack, snapshot.CleanUp:
	}
	return fmt.Errorf("%s is not an action on a snapshot", a)
}

// record writes down the machine, its claims, and what their snapshots will be called.
func (r *Reconciler) record(ctx context.Context, s *observedSnapshot) error {
	c := &snapshotv1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: ContentName(s.of), Namespace: s.of.Namespace},
		Spec: snapshotv1.VirtualMachineSnapshotContentSpec{
			VirtualMachineSnapshotName: ptr.To(s.of.Name),
			Source: snapshotv1.SourceSpec{VirtualMachine: &snapshotv1.VirtualMachine{
				ObjectMeta: metav1.ObjectMeta{
					Name: s.vm.Name, Namespace: s.vm.Namespace, UID: s.vm.UID,
					Labels: s.vm.Labels, Annotations: s.vm.Annotations,
				},
				Spec: s.vm.Spec,
			}},
		},
	}
	if len(s.left) > 0 {
		c.Annotations = map[string]string{annLeft: strings.Join(s.left, "\n")}
	}
	if p := s.of.Spec.DeletionPolicy; p == nil || *p == snapshotv1.DeleteContent {
		c.OwnerReferences = []metav1.OwnerReference{owner(s.of, "VirtualMachineSnapshot")}
	}
	for _, p := range s.parts {
		c.Spec.VolumeBackups = append(c.Spec.VolumeBackups, snapshotv1.VolumeBackup{
			VolumeName: p.volume, PersistentVolumeClaim: p.claim, VolumeSnapshotName: ptr.To(p.name)})
	}
	if err := r.cluster.Create(ctx, c); err != nil {
		return err
	}
	r.cluster.Event(s.of, corev1.EventTypeNormal, "SuccessfulVirtualMachineSnapshotContentCreate", "Successfully created VirtualMachineSnapshotContent "+c.Name)
	return nil
}

// asWas returns a claim as it can be made again, and the volume that it has now, which others read.
func asWas(c *corev1.PersistentVolumeClaim, snapshots string) snapshotv1.PersistentVolumeClaim {
	out := snapshotv1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, Labels: maps.Clone(c.Labels), Annotations: maps.Clone(c.Annotations)},
		Spec:       *c.Spec.DeepCopy(),
	}
	if out.ObjectMeta.Annotations == nil {
		out.ObjectMeta.Annotations = map[string]string{}
	}
	for k := range out.ObjectMeta.Annotations {
		// What binding leaves behind; but for the node: the copy is on the same one.
		if strings.HasPrefix(k, "pv.kubernetes.io/") || strings.Contains(k, "storage-provisioner") {
			delete(out.ObjectMeta.Annotations, k)
		}
	}
	delete(out.ObjectMeta.Annotations, annRestore)
	out.ObjectMeta.Annotations[annSnapshotClass] = snapshots
	if size, ok := c.Status.Capacity[corev1.ResourceStorage]; ok {
		out.Spec.Resources.Requests[corev1.ResourceStorage] = size // a claim may have been given more than it asked for
	}
	return out
}

// shoot makes the VolumeSnapshots that are not there.
func (r *Reconciler) shoot(ctx context.Context, s *observedSnapshot) error {
	for _, p := range s.parts {
		if p.taken != nil {
			continue
		}
		of := p.claim.ObjectMeta.Name
		if other, err := r.replacement(ctx, s.of.Namespace, of); err != nil {
			return err
		} else if other != nil {
			of = other.Name
		}
		taken := volumesnapshot.New(s.of.Namespace, p.name, p.class, of)
		taken.Labels = map[string]string{labelSourceName: s.content.Spec.Source.VirtualMachine.ObjectMeta.Name, labelSourceNamespace: s.of.Namespace}
		taken.OwnerReferences = []metav1.OwnerReference{owner(s.content, "VirtualMachineSnapshotContent")}
		if err := r.cluster.Create(ctx, taken); err != nil {
			return err
		}
		r.cluster.Event(s.of, corev1.EventTypeNormal, "SuccessfulVolumeSnapshotCreate", "Successfully created VolumeSnapshot "+p.name)
	}
	return nil
}

func (r *Reconciler) mark(ctx context.Context, s *observedSnapshot, quiet string) error {
	s.content = s.content.DeepCopy()
	if s.content.Annotations == nil {
		s.content.Annotations = map[string]string{}
	}
	s.content.Annotations[annQuiet] = quiet
	return r.cluster.Mark(ctx, s.content, cluster.Marks{Annotations: map[string]string{annQuiet: quiet}})
}

// finish records on the content that it is complete: from then on it is never taken again.
func (r *Reconciler) finish(ctx context.Context, s *observedSnapshot) error {
	next := snapshotv1.VirtualMachineSnapshotContentStatus{ReadyToUse: ptr.To(true), CreationTime: s.moment()}
	for _, p := range s.parts {
		next.VolumeSnapshotStatus = append(next.VolumeSnapshotStatus, snapshotv1.VolumeSnapshotStatus{
			VolumeSnapshotName: p.name, ReadyToUse: ptr.To(true), CreationTime: p.moment()})
	}
	s.content = s.content.DeepCopy()
	s.content.Status = next
	return r.cluster.ApplyStatus(ctx, &snapshotv1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.content.Namespace, Name: s.content.Name, UID: s.content.UID}, Status: next})
}

// moment returns when the last of the volumes was cut.
func (s *observedSnapshot) moment() *metav1.Time {
	var last *metav1.Time
	if len(s.parts) == 0 && s.content != nil { // it has the machine alone
		return &s.content.CreationTimestamp
	}
	for _, p := range s.parts {
		if t := p.moment(); t != nil && (last == nil || last.Before(t)) {
			last = t
		}
	}
	return last
}

func (p volumePart) moment() *metav1.Time {
	if p.taken == nil {
		return nil
	}
	return volumesnapshot.Cut(p.taken)
}

// without returns the machine's volumes that are in no part.
func (s *observedSnapshot) without(volumes []kubevirt.Volume) []string {
	var out []string
	for _, v := range volumes {
		if !s.has(v.Name) {
			out = append(out, v.Name)
		}
	}
	return out
}

func (s *observedSnapshot) has(volume string) bool {
	for _, p := range s.parts {
		if p.volume == volume {
			return true
		}
	}
	return false
}
