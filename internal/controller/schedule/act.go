package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/decide/schedule"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/timetable"
)

func (r *Reconciler) act(ctx context.Context, a schedule.Action, s *seen, m *machine) error {
	switch a {
	case schedule.Track:
		return refused(r.cluster.Create(ctx, s.tracker(m)))
	case schedule.Make:
		if err := r.cluster.Create(ctx, s.next(m)); err != nil {
			return refused(err)
		}
		m.begins = true
		return nil
	}
	return fmt.Errorf("%s is not an action on a schedule", a)
}

// refused turns a refusal of the API server, such as of a quota, into something that is said.
func refused(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return &instead{state.ScheduleFailed, err.Error()}
	}
	return err
}

func (s *seen) owner() metav1.OwnerReference {
	return *metav1.NewControllerRef(s.of, accessv1.GroupVersion.WithKind("MachineSchedule"))
}

// meta is the metadata of what a schedule makes. It has no owner: what was made stays when the schedule is deleted.
func (s *seen) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.of.Namespace, Name: name, Labels: map[string]string{Label: string(s.of.UID)}}
}

func (s *seen) tracker(m *machine) *backupv1.VirtualMachineBackupTracker {
	t := &backupv1.VirtualMachineBackupTracker{ObjectMeta: s.meta(trackerName(s.of, m.vm))}
	t.OwnerReferences = []metav1.OwnerReference{s.owner()}
	t.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: ptr.To(kubevirt.GroupVersion.Group), Kind: backupv1.Machine, Name: m.name}
	return t
}

// next is what is made for the moment.
func (s *seen) next(m *machine) client.Object {
	meta := s.meta(runName(s.of, m.vm, s.moment))
	if want := s.of.Spec.Snapshot; want != nil {
		v := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: meta}
		v.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: ptr.To(kubevirt.GroupVersion.Group), Kind: backupv1.Machine, Name: m.name}
		v.Spec.FailureDeadline = want.FailureDeadline
		return v
	}
	want := s.of.Spec.Backup
	b := &backupv1.VirtualMachineBackup{ObjectMeta: meta}
	b.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: ptr.To(backupv1.GroupVersion.Group), Kind: backupv1.Tracker, Name: trackerName(s.of, m.vm)}
	b.Spec.PvcName, b.Spec.SkipQuiesce = &want.PvcName, want.SkipQuiesce
	all := make([]timetable.Run, 0, len(m.runs))
	for _, r := range m.runs {
		all = append(all, r.Run)
	}
	b.Spec.ForceFullBackup = timetable.Increments(all) >= want.MostIncrements()
	return b
}

// noteBegun notes for which moment something was made. What was made is found by its name until then.
func (r *Reconciler) noteBegun(ctx context.Context, s *seen) error {
	next := map[types.UID]time.Time{}
	for _, m := range s.machines {
		if m.vm == nil {
			continue
		}
		at := s.begun[m.vm.UID]
		if last := m.last(); last != nil && last.At.After(at) {
			at = last.At
		}
		if m.begins {
			at = s.moment
		}
		if !at.IsZero() {
			next[m.vm.UID] = at
		}
	}
	if len(next) == 0 {
		return nil
	}
	text, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("write what was begun: %w", err)
	}
	if s.of.Annotations[annBegun] == string(text) {
		return nil
	}
	return r.cluster.Annotate(ctx, s.of, annBegun, string(text))
}

func (r *Reconciler) remove(ctx context.Context, a schedule.Removal, s *seen, m *machine) error {
	switch a {
	case schedule.Remove:
		return r.startWorker(ctx, s, m)
	case schedule.Admit:
		return r.records.Admit(ctx, m.worker)
	case schedule.Forget:
		return r.forget(ctx, m)
	case schedule.Delete:
		return r.delete(ctx, m.surplus)
	case schedule.StopWorker:
		return r.cluster.Delete(ctx, m.worker)
	}
	return fmt.Errorf("%s is not an action on old backups", a)
}

// delete deletes objects that the schedule made.
func (r *Reconciler) delete(ctx context.Context, runs []run) error {
	for _, one := range runs {
		if err := r.cluster.Delete(ctx, one.obj); err != nil {
			return err
		}
	}
	return nil
}

// forget deletes the backups whose files the worker removed. Only those that the schedule made are among m.runs, whatever the task says.
func (r *Reconciler) forget(ctx context.Context, m *machine) error {
	var t task.RemoveBackups
	if err := json.Unmarshal([]byte(m.worker.Annotations[render.AnnTask]), &t); err != nil {
		return nil // not made by us: it is deleted
	}
	return r.delete(ctx, slices.DeleteFunc(slices.Clone(m.runs), func(one run) bool {
		return one.checkpoint == "" || !slices.Contains(t.Checkpoints, one.checkpoint)
	}))
}

// startWorker makes the worker that removes the files of the surplus.
func (r *Reconciler) startWorker(ctx context.Context, s *seen, m *machine) error {
	settings, err := r.settings.Settings(ctx)
	if err != nil {
		return err
	}
	t := task.RemoveBackups{Machine: m.vm.Namespace + "/" + m.vm.Name, UID: string(m.vm.UID), Set: render.BackupSet(m.vm.Name)}
	for _, one := range m.surplus {
		t.Checkpoints = append(t.Checkpoints, one.checkpoint)
	}
	pod, err := render.Removal{Name: removalName(s.of, m.vm), Namespace: s.of.Namespace, Machine: m.vm.UID, Owner: s.owner(), Claim: m.claim, Task: t,
		Settings: settings.Pod(r.image)}.Pod()
	if err != nil {
		return err
	}
	if pv, err := cluster.VolumeOf(ctx, r.reader, m.claim); err != nil {
		return err
	} else if pv != nil && pv.Spec.NodeAffinity != nil {
		if err := nodeselect.Follow(ctx, r.reader, pod, pv.Spec.NodeAffinity.Required); err != nil {
			return err
		}
	}
	return r.cluster.Create(ctx, pod)
}
