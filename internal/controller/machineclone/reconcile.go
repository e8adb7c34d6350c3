// Package machineclone makes the targets of VirtualMachineClones: from a snapshot of their source, by a restore, both of which it deletes when
// the target is there. internal/decide/machineclone decides; this package observes, carries out and reports.
//
// It copies no disk and makes no machine itself: internal/controller/snapshot does. Everything is in the clone's own namespace.
package machineclone

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clonev1 "github.com/berth-vm/berth/api/clone/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/decide/machineclone"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/token"
)

// leftOut are annotations that a restore does not give to a machine that it makes.
var leftOut = []string{corev1.LastAppliedConfigAnnotation, token.MachineAnnotation}

// look is how often a waiting clone is checked.
const look = 5 * time.Second

// Reconciler reconciles clones.
type Reconciler struct {
	reader  client.Reader // cached
	live    client.Reader
	cluster *cluster.Writer
	clock   clock.PassiveClock
}

// Setup adds the controller to mgr.
func Setup(mgr ctrl.Manager, writer *cluster.Writer) error {
	r := &Reconciler{reader: mgr.GetClient(), live: mgr.GetAPIReader(), cluster: writer, clock: clock.RealClock{}}
	err := ctrl.NewControllerManagedBy(mgr).Named("machineclone").
		For(&clonev1.VirtualMachineClone{}).
		Owns(&snapshotv1.VirtualMachineRestore{}).
		Watches(&snapshotv1.VirtualMachineSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.clonesOf)).
		Watches(&kubevirt.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.clonesOf)).
		Complete(cluster.Settle(reconcile.Func(r.Reconcile)))
	if err != nil {
		return fmt.Errorf("set up clones of machines: %w", err)
	}
	return nil
}

// clonesOf brings back the clones that a machine or a snapshot is the source, the target or a part of.
func (r *Reconciler) clonesOf(ctx context.Context, obj client.Object) []reconcile.Request {
	var list clonev1.VirtualMachineCloneList
	if err := r.reader.List(ctx, &list, client.InNamespace(obj.GetNamespace())); err != nil {
		log.FromContext(ctx).Error(err, "list the clones of a machine")
		return nil
	}
	var due []reconcile.Request
	for i := range list.Items {
		c := &list.Items[i]
		if name := obj.GetName(); name == c.Spec.Source.Name || name == snapshotName(c) || name == ptr.Deref(c.Status.TargetName, "") {
			due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		}
	}
	return due
}

// Reconcile brings one clone a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	of, err := cluster.Get[clonev1.VirtualMachineClone](ctx, r.live, req.Namespace, req.Name)
	if err != nil || of == nil || of.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	s, err := r.observe(ctx, of)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := s.facts()
	plan := machineclone.Decide(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		err := r.act(ctx, a, s)
		if a == machineclone.Make && apierrors.IsInvalid(err) { // it will be refused again
			s.wrong, plan.State = err.Error(), state.CloneWrong
			break
		}
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	if facts.Over != machineclone.NotOver {
		return ctrl.Result{}, nil
	}
	return r.report(ctx, s, state.OfClone(plan.State))
}

func (r *Reconciler) act(ctx context.Context, a machineclone.Action, s *seen) error {
	of := s.of
	meta := metav1.ObjectMeta{Namespace: of.Namespace, OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(of, clonev1.GroupVersion.WithKind("VirtualMachineClone"))}}
	switch a {
	case machineclone.Take:
		meta.Name = snapshotName(of)
		return r.cluster.Create(ctx, &snapshotv1.VirtualMachineSnapshot{ObjectMeta: meta,
			Spec: snapshotv1.VirtualMachineSnapshotSpec{Source: of.Spec.Source}})
	case machineclone.Make:
		meta.Name = restoreName(of)
		return r.cluster.Create(ctx, &snapshotv1.VirtualMachineRestore{ObjectMeta: meta, Spec: snapshotv1.VirtualMachineRestoreSpec{
			Target:                     corev1.TypedLocalObjectReference{APIGroup: ptr.To(kubevirt.GroupVersion.Group), Kind: "VirtualMachine", Name: s.name},
			VirtualMachineSnapshotName: s.snapshot.Name, Patches: s.patches,
		}})
	case machineclone.CleanUp:
		if s.restore != nil && s.restore.DeletionTimestamp == nil {
			if err := r.cluster.Delete(ctx, s.restore); err != nil {
				return err
			}
		}
		if s.snapshot != nil && s.snapshot.DeletionTimestamp == nil && !fromSnapshot(of) {
			return r.cluster.Delete(ctx, s.snapshot)
		}
		return nil
	case machineclone.DropClone:
		return r.cluster.Delete(ctx, of)
	}
	return fmt.Errorf("%s is not an action on a clone", a)
}

// report writes the status of a clone, and an event if it changed.
func (r *Reconciler) report(ctx context.Context, s *seen, row state.CloneRow) (ctrl.Result, error) {
	old, text := s.of.Status, row.Text(s.detail(row.Reason))
	next := clonev1.VirtualMachineCloneStatus{Phase: clonev1.Phase(row.Phase), Conditions: r.conditions(old.Conditions, row, text)}
	if s.name != "" {
		next.TargetName = &s.name
	}
	if row.End != state.Well && row.Phase != "" {
		if !fromSnapshot(s.of) {
			next.SnapshotName = ptr.To(snapshotName(s.of))
		} else {
			next.SnapshotName = &s.of.Spec.Source.Name
		}
		if s.restore != nil || row.Reason == state.CloneRestoring {
			next.RestoreName = ptr.To(restoreName(s.of))
		}
	}
	if s.target != nil && row.End == state.Well {
		next.CreationTime = ptr.To(metav1.NewTime(r.clock.Now()).Rfc3339Copy())
	}
	result := ctrl.Result{}
	if row.End == state.GoingOn {
		result.RequeueAfter = look
	} else {
		result.RequeueAfter = time.Millisecond // to clean up
	}
	if equality.Semantic.DeepEqual(old, next) {
		return result, nil
	}
	err := r.cluster.ApplyStatus(ctx, &clonev1.VirtualMachineClone{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.of.Namespace, Name: s.of.Name, UID: s.of.UID}, Status: next})
	if err != nil {
		return ctrl.Result{}, err
	}
	kind := corev1.EventTypeNormal
	if row.Warn {
		kind = corev1.EventTypeWarning
	}
	r.cluster.Turn(s.of, kind, string(row.Reason), text)
	return result, nil
}

// detail returns the value of {detail} in a row.
func (s *seen) detail(reason state.CloneReason) string {
	switch reason {
	case state.CloneNoSource:
		return s.of.Spec.Source.Kind + " " + s.of.Spec.Source.Name
	case state.CloneSnapshotting, state.CloneSnapshotFailed:
		if s.snapshot == nil {
			return snapshotName(s.of)
		}
		return s.snapshot.Name + ready(s.snapshot.Status.Conditions)
	case state.ClonePartial:
		if s.machine() == nil {
			return s.snapshot.Name + " records no machine"
		}
		return s.snapshot.Name + " is without " + strings.Join(snapshotcontent.LeftOut(s.content), ", ")
	case state.CloneRestoring, state.CloneCreating, state.CloneRestoreFailed:
		if s.restore == nil {
			return restoreName(s.of)
		}
		return s.restore.Name + ready(s.restore.Status.Conditions)
	case state.CloneNameTaken:
		return s.taken
	case state.CloneWrong:
		return s.wrong
	case state.CloneTargetExists, state.CloneTargetLost, state.CloneDone, state.CloneFailed:
	}
	return s.name
}

// ready returns the message of the condition Ready, after a colon.
func ready(all []snapshotv1.Condition) string {
	for _, c := range all {
		if c.Type == snapshotv1.ConditionReady && c.Message != "" {
			return ": " + c.Message
		}
	}
	return ""
}

// conditions have the words of upstream's conditions as reasons while a clone continues and when it is there.
func (r *Reconciler) conditions(old []clonev1.Condition, row state.CloneRow, text string) []clonev1.Condition {
	isReady := clonev1.Condition{Type: clonev1.ConditionReady, Status: corev1.ConditionFalse, Reason: string(row.Reason), Message: text}
	progressing := clonev1.Condition{Type: clonev1.ConditionProgressing, Status: corev1.ConditionFalse, Message: text}
	switch {
	case row.End == state.Well:
		isReady.Status, isReady.Reason, progressing.Reason = corev1.ConditionTrue, "Ready", "Ready"
	case row.End == state.Badly:
		progressing.Reason = "Failed"
	case row.Phase == "":
		progressing.Reason = "Pending"
	default:
		isReady.Reason, progressing.Status, progressing.Reason = "Still processing", corev1.ConditionTrue, "Still processing"
	}
	next := []clonev1.Condition{progressing, isReady}
	for i := range next {
		next[i].LastTransitionTime = metav1.NewTime(r.clock.Now()).Rfc3339Copy()
		for _, was := range old {
			if was.Type == next[i].Type && was.Status == next[i].Status {
				next[i].LastTransitionTime = was.LastTransitionTime
			}
		}
	}
	return next
}
