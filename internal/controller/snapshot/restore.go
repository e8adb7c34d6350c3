package snapshot

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/replaced"
	"github.com/berth-vm/berth/internal/decide/snapshot"
	"github.com/berth-vm/berth/internal/state"
)

// annRestore is on a claim or a machine that a restore made: the restore's UID.
const annRestore = "berth.dev/restore"

// patience is how long a restore with the policy WaitGracePeriod waits for its machine to be stopped.
const patience = 5 * time.Minute

// back is one restore and everything its next step depends on, read once.
type back struct {
	of       *snapshotv1.VirtualMachineRestore
	vm       *kubevirt.VirtualMachine // nil: there is none
	instance *kubevirt.VirtualMachineInstance
	launcher *corev1.Pod
	snapshot *snapshotv1.VirtualMachineSnapshot
	shot     *shot // what the snapshot consists of; nil: it is not there
	claims   []returning
	refused  string // why the API server does not take the machine
	// displaced: the data of a claim is on another volume, since the machine moved.
	displaced bool
	now       time.Time
}

// reconcileRestore brings one restore a step further.
func (r *Reconciler) reconcileRestore(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	of, err := cluster.Get[snapshotv1.VirtualMachineRestore](ctx, r.live, req.Namespace, req.Name)
	if err != nil || of == nil || of.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	b, err := r.observeRestore(ctx, of)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := b.facts()
	plan := snapshot.Restore(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		if err := r.actRestore(ctx, a, b); err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	return r.reportRestore(ctx, b, plan.State)
}

// observeRestore reads what a restore depends on, from the server itself: claims are about to be deleted.
func (r *Reconciler) observeRestore(ctx context.Context, of *snapshotv1.VirtualMachineRestore) (*back, error) {
	b := &back{of: of, now: r.clock.Now()}
	if b.over() != snapshot.NotOver {
		return b, nil
	}
	var err error
	if b.vm, err = cluster.Get[kubevirt.VirtualMachine](ctx, r.live, of.Namespace, of.Spec.Target.Name); err != nil {
		return nil, err
	}
	if b.instance, err = cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.live, of.Namespace, of.Spec.Target.Name); err != nil {
		return nil, err
	}
	if b.launcher, err = r.launcherOf(ctx, b.instance); err != nil {
		return nil, err
	}
	b.snapshot, err = cluster.Get[snapshotv1.VirtualMachineSnapshot](ctx, r.live, of.Namespace, of.Spec.VirtualMachineSnapshotName)
	if err != nil || b.snapshot == nil {
		return b, err
	}
	if b.shot, err = r.observe(ctx, b.snapshot); err != nil || b.shot.content == nil {
		return b, err
	}
	b.claims = b.returns()
	for i := range b.claims {
		c := &b.claims[i]
		if c.now, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, of.Namespace, c.to); err != nil {
			return nil, err
		}
		last, _, err := replaced.Of(ctx, r.live, of.Namespace, c.to)
		if err != nil {
			return nil, err
		}
		b.displaced = b.displaced || last != nil
	}
	return b, nil
}

// facts are what the decision sees.
func (b *back) facts() snapshot.RestoreFacts {
	return snapshot.RestoreFacts{
		Over: b.over(), Source: b.source(), Machine: b.machine(), Policy: policy(b.of),
		Late: b.now.After(b.of.CreationTimestamp.Add(patience)), Claims: b.situation(), Changed: b.changed(),
	}
}

// machine is as for a snapshot, but that an instance that has ended is in the way of its claims no more than none.
func (b *back) machine() snapshot.Machine {
	m := situation(b.vm, b.instance, b.launcher)
	if b.vm != nil && b.source() != snapshot.Pending && b.elsewhere() && b.vm.Annotations[annRestore] != string(b.of.UID) {
		return snapshot.Other
	}
	if m == snapshot.Between && b.instance.DeletionTimestamp == nil {
		return snapshot.Running // one that is starting is to be stopped like one that runs
	}
	if m == snapshot.Stopped && b.displaced {
		return snapshot.Between // a claim that is about to get the volume that its data moved to would get it in place of the restored one
	}
	return m
}

// over is how the restore ended. It is a record: what it restored may be changed and deleted since.
func (b *back) over() snapshot.Over {
	for _, c := range b.of.Status.Conditions {
		switch {
		case c.Type == snapshotv1.ConditionReady && c.Status == corev1.ConditionTrue:
			return snapshot.Complete
		case c.Type == snapshotv1.ConditionFailure && c.Status == corev1.ConditionTrue:
			return snapshot.Failed
		}
	}
	return snapshot.NotOver
}

func (b *back) source() snapshot.Source {
	switch {
	case b.snapshot == nil, b.shot.content == nil:
		return snapshot.Pending
	case b.wrong() != "":
		return snapshot.Void
	}
	switch end := state.OfSnapshot(snapshot.Take(b.shot.facts()).State).End; end {
	case state.Well:
		return snapshot.Ready
	case state.Badly:
		return snapshot.Void
	case state.GoingOn:
	}
	return snapshot.Pending
}

// wrong is why what is asked for cannot be, if that is so.
func (b *back) wrong() string {
	if p := b.of.Spec.VolumeRestorePolicy; p != nil && *p == snapshotv1.PrefixTargetName && !b.elsewhere() {
		return fmt.Sprintf("volumeRestorePolicy %s is for another machine; in %s claims keep their names, which is policy %s",
			snapshotv1.PrefixTargetName, b.of.Spec.Target.Name, snapshotv1.InPlace)
	}
	if b.made() {
		if _, err := b.machineAgain(); err != nil {
			return err.Error()
		}
	}
	return ""
}

func policy(of *snapshotv1.VirtualMachineRestore) snapshot.Policy {
	if of.Spec.TargetReadinessPolicy == nil {
		return snapshot.WaitAWhile
	}
	switch *of.Spec.TargetReadinessPolicy {
	case snapshotv1.StopTarget:
		return snapshot.Stop
	case snapshotv1.FailImmediate:
		return snapshot.Fail
	case snapshotv1.WaitEventually:
		return snapshot.Wait
	case snapshotv1.WaitGracePeriod:
	}
	return snapshot.WaitAWhile
}

// situation is the worst of all claims; Bound < Made < Absent < Leaving < Old < Stranger.
func (b *back) situation() snapshot.Claims {
	worst := snapshot.Bound
	for _, c := range b.claims {
		worst = max(worst, b.claim(c))
	}
	return worst
}

func (b *back) claim(c returning) snapshot.Claims {
	switch {
	case c.now == nil:
		return snapshot.Absent
	case c.now.DeletionTimestamp != nil:
		return snapshot.Leaving
	case c.now.Annotations[annRestore] == string(b.of.UID) && c.now.Status.Phase == corev1.ClaimBound:
		return snapshot.Bound
	case c.now.Annotations[annRestore] == string(b.of.UID):
		return snapshot.Made
	case !b.belongs(c.now, b.volume(c)):
		return snapshot.Stranger
	}
	return snapshot.Old
}

// changed: the machine is not what it was.
func (b *back) changed() bool {
	if b.vm == nil || b.shot == nil || b.shot.content == nil {
		return false
	}
	spec, err := b.spec()
	return err == nil && !equality.Semantic.DeepEqual(b.vm.Spec, spec)
}

func (r *Reconciler) actRestore(ctx context.Context, a snapshot.Action, b *back) error {
	switch a {
	case snapshot.MakeMachine:
		return r.makeMachine(ctx, b)
	case snapshot.StopMachine:
		return r.cluster.Delete(ctx, b.instance)
	case snapshot.DropClaims:
		return r.dropClaims(ctx, b)
	case snapshot.MakeClaims:
		for _, c := range b.claims {
			if c.now != nil {
				continue
			}
			if err := r.cluster.Create(ctx, b.again(c)); err != nil {
				return err
			}
		}
		return nil
	case snapshot.ChangeBack:
		next := b.vm.DeepCopy()
		var err error
		if next.Spec, err = b.spec(); err != nil {
			return err
		}
		return r.cluster.Change(ctx, b.vm, next)
	case snapshot.Record, snapshot.Freeze, snapshot.Shoot, snapshot.Thaw, snapshot.Finish:
	}
	return fmt.Errorf("%s is not an action on a restore", a)
}

// makeMachine makes the target from the snapshot. One that the API server refuses for what it is will be refused again.
func (r *Reconciler) makeMachine(ctx context.Context, b *back) error {
	vm, err := b.machineAgain()
	if err != nil {
		return err
	}
	err = r.cluster.Create(ctx, vm)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		b.refused = err.Error()
		return nil
	}
	return err
}

// dropClaims deletes the claims that are to be replaced. The DataVolume of one is told first that its claim will come
// with its data: it would make another and fill it.
func (r *Reconciler) dropClaims(ctx context.Context, b *back) error {
	for _, c := range b.claims {
		if b.claim(c) != snapshot.Old {
			continue
		}
		if err := r.cluster.AwaitClaim(ctx, r.live, b.of.Namespace, b.volume(c)); err != nil {
			return err
		}
		if err := r.cluster.Delete(ctx, c.now); err != nil {
			return err
		}
	}
	return nil
}

// reportRestore writes what is said about a restore.
func (r *Reconciler) reportRestore(ctx context.Context, b *back, reason state.SnapshotReason) (ctrl.Result, error) {
	if b.over() != snapshot.NotOver {
		return ctrl.Result{}, nil
	}
	if b.refused != "" {
		reason = state.RestoreFailed
	}
	row := state.OfSnapshot(reason)
	text := row.Text(b.detail(reason))
	old := b.of.Status
	done := row.End == state.Well
	next := snapshotv1.VirtualMachineRestoreStatus{Complete: &done, Conditions: r.conditions(old.Conditions, row, text)}
	if done {
		at := metav1.NewTime(b.now).Rfc3339Copy()
		next.RestoreTime = &at
	}
	for _, c := range b.claims {
		v := snapshotv1.VolumeRestore{VolumeName: c.volume, PersistentVolumeClaimName: c.to, VolumeSnapshotName: c.name}
		if name := b.volume(c); name != "" {
			v.DataVolumeName = &name
		}
		next.Restores = append(next.Restores, v)
	}
	result := ctrl.Result{}
	if row.End == state.GoingOn {
		result.RequeueAfter = look
	}
	if equality.Semantic.DeepEqual(old, next) {
		return result, nil
	}
	err := r.cluster.ApplyStatus(ctx, &snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.of.Namespace, Name: b.of.Name, UID: b.of.UID}, Status: next})
	if err != nil {
		return ctrl.Result{}, err
	}
	r.tell(b.of, old.Conditions, row, text)
	return result, nil
}

// detail is what a row's {detail} stands for.
func (b *back) detail(reason state.SnapshotReason) string {
	switch reason {
	case state.RestoreWaiting, state.RestoreFailed:
		return b.trouble()
	case state.RestoreMachine, state.RestoreTaken, state.RestoreStopping, state.RestoreRefused:
		return b.of.Spec.Target.Name
	case state.RestoreDropping, state.RestoreMaking:
		for _, c := range b.claims {
			if is := b.claim(c); is != snapshot.Bound {
				return fmt.Sprintf("PersistentVolumeClaim %s is %s", c.to, is)
			}
		}
	case state.RestoreDone, state.SnapshotNoMachine, state.SnapshotUnsteady, state.SnapshotNothing, state.SnapshotBegun,
		state.SnapshotCutting, state.SnapshotStoring, state.SnapshotDone, state.SnapshotFailed, state.SnapshotLost:
	}
	return ""
}

func (b *back) trouble() string {
	name := b.of.Spec.VirtualMachineSnapshotName
	switch {
	case b.refused != "":
		return b.refused
	case b.snapshot == nil:
		return fmt.Sprintf("VirtualMachineSnapshot %s does not exist", name)
	case b.shot.content != nil && b.wrong() != "":
		return b.wrong()
	}
	for _, c := range b.claims {
		if b.claim(c) == snapshot.Stranger {
			return strange(c.now)
		}
	}
	if open := b.shot.open(); open != "" {
		return open
	}
	return fmt.Sprintf("VirtualMachineSnapshot %s is not complete", name)
}
