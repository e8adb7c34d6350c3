package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/decide/snapshot"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/state"
)

// patience is how long a restore with the policy WaitGracePeriod waits for its machine to be stopped.
const patience = 5 * time.Minute

// observed is one restore and everything its next step depends on, read once.
type observed struct {
	target
	instance *kubevirt.VirtualMachineInstance
	launcher *corev1.Pod
	snapshot *snapshotv1.VirtualMachineSnapshot
	claims   []restoredClaim
	refused  string // why the API server does not take the machine
	denied   string // why it does not take a claim, or a change of the machine
	// displaced: the machine moved, and what the move left of a claim is not cleaned up yet.
	displaced bool
	// ahead is another restore of the machine that began before; empty: there is none.
	ahead string
	// namespaceLeaving: the namespace is being deleted, and this restore with it.
	namespaceLeaving bool
	keeps            []corev1.PersistentVolume // old volumes that are there until their successors have the names
	now              time.Time
}

// Reconcile brings one restore a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	of, err := cluster.Get[snapshotv1.VirtualMachineRestore](ctx, r.live, req.Namespace, req.Name)
	if err != nil || of == nil || of.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(of, names.RestoreFinalizer) {
		return ctrl.Result{}, err
	}
	b, err := r.observe(ctx, of)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := b.facts()
	if err := r.own(ctx, b, facts); err != nil {
		return ctrl.Result{}, err
	}
	plan := snapshot.Restore(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		if err := r.act(ctx, a, b); err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	if of.DeletionTimestamp != nil && slices.Contains(plan.Do, snapshot.CleanUp) {
		return ctrl.Result{}, nil // it is gone
	}
	return r.report(ctx, b, b.outcome(plan.State))
}

// observe reads what a restore depends on, from the server itself: claims are about to be deleted.
func (r *Reconciler) observe(ctx context.Context, of *snapshotv1.VirtualMachineRestore) (*observed, error) {
	b := &observed{target: target{of: of}, now: r.clock.Now()}
	if over(of) != snapshot.NotOver {
		return b, nil
	}
	var err error
	if b.vm, err = cluster.Get[kubevirt.VirtualMachine](ctx, r.live, of.Namespace, of.Spec.Target.Name); err != nil {
		return nil, err
	}
	if b.instance, err = cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.live, of.Namespace, of.Spec.Target.Name); err != nil {
		return nil, err
	}
	if b.launcher, err = r.read().LauncherOf(ctx, b.instance); err != nil {
		return nil, err
	}
	if err := r.observeOthers(ctx, b); err != nil {
		return nil, err
	}
	if b.snapshot, err = r.snapshotOf(ctx, of); err != nil || b.snapshot == nil {
		return b, err
	}
	if b.data, err = r.read().Observe(ctx, b.snapshot); err != nil || b.data.Content == nil {
		return b, err
	}
	return b, r.observeClaims(ctx, b)
}

// snapshotOf returns the snapshot that the restore is to put back; nil: there is none. A restore that has begun continues with
// what it began with, also if the snapshot was deleted since, or another has its name.
func (r *Reconciler) snapshotOf(ctx context.Context, of *snapshotv1.VirtualMachineRestore) (*snapshotv1.VirtualMachineSnapshot, error) {
	s, err := cluster.Get[snapshotv1.VirtualMachineSnapshot](ctx, r.live, of.Namespace, of.Spec.VirtualMachineSnapshotName)
	begun := of.Annotations[annContent]
	if err != nil || begun == "" || s != nil && snapshotcontent.ContentName(s) == begun {
		return s, err
	}
	was := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{
		Namespace: of.Namespace, Name: of.Spec.VirtualMachineSnapshotName, UID: types.UID(strings.TrimPrefix(begun, snapshotcontent.ContentPrefix))}}
	was.Spec.Source.Name = of.Spec.Target.Name
	return was, nil
}

// observeClaims reads the state of each claim.
func (r *Reconciler) observeClaims(ctx context.Context, b *observed) error {
	b.claims = b.restoredClaims()
	for i := range b.claims {
		c := &b.claims[i]
		var err error
		if c.now, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, b.of.Namespace, c.to); err != nil {
			return err
		}
		last, _, err := replacedclaim.Of(ctx, r.live, b.of.Namespace, c.to)
		if err != nil {
			return err
		}
		aliases, err := replacedclaim.Aliases(ctx, r.live, b.of.Namespace, c.to)
		if err != nil {
			return err
		}
		b.displaced = b.displaced || last != nil || len(aliases) > 0
		if !b.inPlace() {
			continue
		}
		if err := r.observeStaged(ctx, b, c); err != nil {
			return err
		}
	}
	if !b.inPlace() || b.volumes() != snapshot.There || b.situation() < snapshot.Leaving {
		return nil
	}
	return r.observeUsers(ctx, b)
}

// observeOthers finds another restore of the machine that began before, and what this one keeps.
func (r *Reconciler) observeOthers(ctx context.Context, b *observed) error {
	var list snapshotv1.VirtualMachineRestoreList
	if err := cluster.List(ctx, r.live, b.of.Namespace, &list); err != nil {
		return err
	}
	for i := range list.Items {
		if other := &list.Items[i]; other.UID != b.of.UID && other.Spec.Target.Name == b.of.Spec.Target.Name && ahead(other, b.of) {
			b.ahead = other.Name
		}
	}
	if b.of.DeletionTimestamp != nil {
		namespace, err := cluster.Get[corev1.Namespace](ctx, r.live, "", b.of.Namespace)
		if err != nil {
			return err
		}
		b.namespaceLeaving = namespace == nil || namespace.DeletionTimestamp != nil
	}
	if b.of.Annotations[annCommitted] == "" {
		return nil
	}
	var err error
	b.keeps, err = r.kept(ctx, b)
	return err
}

// ahead reports whether the other restore has begun to make volumes, and this one has not or started later.
func ahead(other, of *snapshotv1.VirtualMachineRestore) bool {
	begun := func(r *snapshotv1.VirtualMachineRestore) bool {
		return controllerutil.ContainsFinalizer(r, names.RestoreFinalizer)
	}
	if over(other) != snapshot.NotOver || !begun(other) {
		return false
	}
	if !begun(of) || other.Annotations[annCommitted] != "" {
		return true
	}
	if !other.CreationTimestamp.Equal(&of.CreationTimestamp) {
		return other.CreationTimestamp.Before(&of.CreationTimestamp)
	}
	return other.UID < of.UID
}

// facts returns what the decision sees.
func (b *observed) facts() snapshot.RestoreFacts {
	return snapshot.RestoreFacts{
		Over: over(b.of), Source: b.source(), Machine: b.machine(), Policy: policy(b.of),
		Late: b.now.After(b.of.CreationTimestamp.Add(patience)), Claims: b.situation(), Changed: b.changed(),
		Stage: b.stageNow(), Volumes: b.volumes(), Withdrawn: b.of.DeletionTimestamp != nil,
	}
}

// machine returns the state of the machine as for a snapshot, except that an instance that has ended counts as none.
func (b *observed) machine() snapshot.Machine {
	m := snapshotcontent.MachineSituation(b.vm, b.instance, b.launcher)
	if b.vm != nil && b.source() != snapshot.Pending && b.elsewhere() && b.vm.Annotations[snapshotcontent.AnnRestore] != string(b.of.UID) {
		return snapshot.Other
	}
	if b.ahead != "" && b.stageNow() != snapshot.Committed {
		return snapshot.Contended
	}
	if m == snapshot.Between && b.instance.DeletionTimestamp == nil {
		return snapshot.Running // a machine that is starting has to be stopped like one that runs
	}
	if m == snapshot.Stopped && b.displaced {
		return snapshot.Between // a claim that is about to get the volume that its data moved to would get it in place of the restored one
	}
	return m
}

// over returns how the restore ended. It is a record: what it restored may be changed and deleted since.
func over(of *snapshotv1.VirtualMachineRestore) snapshot.Over {
	for _, c := range of.Status.Conditions {
		switch {
		case c.Type == snapshotv1.ConditionReady && c.Status == corev1.ConditionTrue:
			return snapshot.Complete
		case c.Type == snapshotv1.ConditionFailure && c.Status == corev1.ConditionTrue:
			return snapshot.Failed
		}
	}
	return snapshot.NotOver
}

func (b *observed) source() snapshot.Source {
	switch {
	case b.snapshot == nil, b.data.Content == nil:
		return snapshot.Pending
	case b.wrong() != "":
		return snapshot.Void
	}
	switch end := state.OfSnapshot(snapshot.Take(b.data.Facts()).State).End; end {
	case state.Well:
		return snapshot.Ready
	case state.Badly:
		return snapshot.Void
	case state.GoingOn:
	}
	return snapshot.Pending
}

// wrong returns why what is asked for cannot be, if that is so.
func (b *observed) wrong() string {
	if p := b.of.Spec.VolumeRestorePolicy; p != nil && *p == snapshotv1.PrefixTargetName && !b.elsewhere() {
		return fmt.Sprintf("volumeRestorePolicy %s is for another machine; in %s claims keep their names, which is policy %s",
			snapshotv1.PrefixTargetName, b.of.Spec.Target.Name, snapshotv1.InPlace)
	}
	if b.made() {
		if _, err := b.newMachine(); err != nil {
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

// situation returns the worst of all claims; Bound < Made < Open < Absent < Leaving < Old < InUse < Stranger.
func (b *observed) situation() snapshot.Claims {
	if b.lost() {
		return snapshot.Stranger // its format is unknown
	}
	worst := snapshot.Bound
	for _, c := range b.claims {
		worst = max(worst, b.claim(c))
	}
	return worst
}

// lost reports whether claims are being replaced and one of their replacements was removed by force.
func (b *observed) lost() bool {
	return b.stageNow() == snapshot.Committed && (b.data == nil || b.data.Content == nil)
}

func (b *observed) claim(c restoredClaim) snapshot.Claims {
	switch {
	case c.now == nil:
		return snapshot.Absent
	case c.now.DeletionTimestamp != nil:
		return snapshot.Leaving
	case b.ours(c.now):
		return b.claimMade(c)
	case !b.belongs(c.now, b.volume(c)):
		return snapshot.Stranger
	case len(c.staged.users) > 0:
		return snapshot.InUse
	}
	return snapshot.Old
}

// claimMade returns the state of a claim that this restore made.
func (b *observed) claimMade(c restoredClaim) snapshot.Claims {
	s := c.staged.claim
	switch {
	case c.now.Status.Phase == corev1.ClaimBound:
		return snapshot.Bound
	case !b.inPlace(), c.now.Spec.VolumeName == "", b.given(c):
		return snapshot.Made
	case s != nil && s.Spec.VolumeName != "" && s.Spec.VolumeName != c.now.Spec.VolumeName:
		return snapshot.Old // the volume that it names was lost, and another made
	}
	return snapshot.Open
}

// changed reports whether the machine is not what it was.
func (b *observed) changed() bool {
	if b.vm == nil || b.data == nil || b.data.Content == nil {
		return false
	}
	spec, err := b.spec()
	return err == nil && !equality.Semantic.DeepEqual(b.vm.Spec, spec)
}

func (r *Reconciler) act(ctx context.Context, a snapshot.Action, b *observed) error {
	switch a {
	case snapshot.MakeMachine:
		return r.makeMachine(ctx, b)
	case snapshot.StopMachine:
		return r.cluster.Delete(ctx, b.instance)
	case snapshot.Guard:
		return r.guard(ctx, b)
	case snapshot.MakeVolumes:
		return r.makeVolumes(ctx, b)
	case snapshot.Place:
		return r.placeVolumes(ctx, b)
	case snapshot.Commit:
		return r.commit(ctx, b)
	case snapshot.DropClaims:
		return r.dropClaims(ctx, b)
	case snapshot.MakeClaims:
		return r.makeClaims(ctx, b)
	case snapshot.Give:
		return r.give(ctx, b)
	case snapshot.CleanUp:
		return r.cleanUp(ctx, b)
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
func (r *Reconciler) makeMachine(ctx context.Context, b *observed) error {
	vm, err := b.newMachine()
	if err != nil {
		return err
	}
	err = r.cluster.Create(ctx, vm)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		b.refused = err.Error()
		if b.stageNow() != snapshot.Committed {
			return r.cleanUp(ctx, b) // it ends here
		}
		return nil
	}
	return err
}
