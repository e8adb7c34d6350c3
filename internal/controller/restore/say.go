package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/decide/snapshot"
	"github.com/berth-vm/berth/internal/state"
)

// outcome returns the reported state: what was decided, or why the API server refused it.
func (b *observed) outcome(decided state.SnapshotReason) state.SnapshotReason {
	committed := b.stageNow() == snapshot.Committed
	switch {
	case b.refused == "" && b.denied == "":
		return decided
	case committed:
		return state.RestoreStuck
	case b.refused != "":
		return state.RestoreFailed
	}
	return state.RestoreBlocked
}

// report writes the status of a restore.
func (r *Reconciler) report(ctx context.Context, b *observed, reason state.SnapshotReason) (ctrl.Result, error) {
	if over(b.of) != snapshot.NotOver {
		return ctrl.Result{}, nil
	}
	row := state.OfSnapshot(reason)
	text := row.Text(b.detail(reason))
	old, said := b.of.Status, snapshotcontent.Reporter{Cluster: r.cluster, Clock: r.clock}
	done := row.End == state.Well
	next := snapshotv1.VirtualMachineRestoreStatus{Complete: &done, Conditions: said.Conditions(old.Conditions, row, text)}
	if done {
		at := metav1.NewTime(b.now).Rfc3339Copy()
		next.RestoreTime = &at
	}
	for _, c := range b.claims {
		v := snapshotv1.VolumeRestore{VolumeName: c.Volume, PersistentVolumeClaimName: c.to, VolumeSnapshotName: c.Name}
		if name := b.volume(c); name != "" {
			v.DataVolumeName = &name
		}
		next.Restores = append(next.Restores, v)
	}
	result := ctrl.Result{}
	if row.End == state.GoingOn {
		result.RequeueAfter = look
		if row.Warn {
			result.RequeueAfter = lookAgain // a person has to act first
		}
	}
	if equality.Semantic.DeepEqual(old, next) {
		return result, nil
	}
	err := r.cluster.ApplyStatus(ctx, &snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.of.Namespace, Name: b.of.Name, UID: b.of.UID}, Status: next})
	if err != nil {
		return ctrl.Result{}, err
	}
	said.Tell(b.of, old.Conditions, row, text)
	return result, nil
}

// detail returns what a row's {detail} stands for.
func (b *observed) detail(reason state.SnapshotReason) string {
	switch reason {
	case state.RestoreWaiting, state.RestoreFailed:
		return b.trouble()
	case state.RestoreMachine, state.RestoreTaken, state.RestoreStopping, state.RestoreRefused:
		return b.of.Spec.Target.Name
	case state.RestoreQueued:
		return "VirtualMachineRestore " + b.ahead
	case state.RestoreInUse:
		return b.users()
	case state.RestoreStaging, state.RestoreBlocked:
		return b.stagedDetail()
	case state.RestoreStuck:
		return b.stuck() + b.keptText()
	case state.RestoreReplacing, state.RestoreMaking:
		for _, c := range b.claims {
			if is := b.claim(c); is != snapshot.Bound {
				return fmt.Sprintf("PersistentVolumeClaim %s is %s%s", c.to, is, b.inTheWay(c))
			}
		}
	case state.RestoreDone, state.RestoreWithdrawn, state.SnapshotNoMachine, state.SnapshotUnsteady, state.SnapshotNothing, state.SnapshotBegun,
		state.SnapshotCutting, state.SnapshotStoring, state.SnapshotDone, state.SnapshotFailed, state.SnapshotLost:
	}
	return ""
}

// inTheWay returns who keeps a claim that is being deleted.
func (b *observed) inTheWay(c restoredClaim) string {
	if b.claim(c) != snapshot.Leaving || len(c.staged.users) == 0 {
		return ""
	}
	return ": " + strings.Join(c.staged.users, ", ")
}

// users names the pods and machines that use claims that have to be replaced.
func (b *observed) users() string {
	var out []string
	for _, c := range b.claims {
		if b.claim(c) == snapshot.InUse {
			out = append(out, c.staged.users...)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// stagedDetail returns why the volumes do not exist, or the progress of the first that is not ready.
func (b *observed) stagedDetail() string {
	var why []string
	if b.denied != "" {
		why = append(why, b.denied)
	}
	for _, c := range b.claims {
		if text := b.blocked(c); text != "" {
			why = append(why, text)
		}
	}
	if len(why) > 0 {
		return strings.Join(why, "; ")
	}
	for _, c := range b.claims {
		if is := b.volumeSituation(c); is != snapshot.There {
			return fmt.Sprintf("the volume for PersistentVolumeClaim %s is %s", c.to, is)
		}
	}
	return ""
}

// stuck returns why a replacement of claims that has begun cannot continue.
func (b *observed) stuck() string {
	switch {
	case b.refused != "":
		return b.refused
	case b.lost():
		return fmt.Sprintf("VirtualMachineSnapshotContent %s is gone; the volumes are in the claims with the label %s=%s",
			b.of.Annotations[annContent], labelStaged, b.of.UID)
	}
	for _, c := range b.claims {
		if b.claim(c) == snapshot.Stranger {
			return strange(c.now)
		}
	}
	return b.stagedDetail()
}

func (b *observed) trouble() string {
	name := b.of.Spec.VirtualMachineSnapshotName
	switch {
	case b.refused != "":
		return b.refused
	case b.snapshot == nil:
		return fmt.Sprintf("VirtualMachineSnapshot %s does not exist", name)
	case b.data.Content != nil && b.wrong() != "":
		return b.wrong()
	}
	for _, c := range b.claims {
		if b.claim(c) == snapshot.Stranger {
			return strange(c.now)
		}
	}
	if open := b.data.Open(); open != "" {
		return open
	}
	return fmt.Sprintf("VirtualMachineSnapshot %s is not complete", name)
}
