package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/replaced"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/decide/replace"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/render"
)

// When no launcher has a volume that the data of a claim moved to, the claim gets it: at once when the machine stops, and before it
// starts at the latest. Until then nothing is started with the claim.

// returnAgain is how often a claim is looked at that is about to get its volume.
const returnAgain = time.Second

// observeReplaced: a machine is not started with a claim whose data is on another volume.
func (r *Reconciler) observeReplaced(ctx context.Context, s *run, d *disk, name string) error {
	if s.launcher != nil {
		return nil // it was started before, or has the replacement
	}
	last, _, err := replaced.Of(ctx, r.reader, s.instance.Namespace, name)
	switch {
	case err != nil:
		return err
	case partial(d.claim) != "":
		d.is, d.why = machine.Failed, partial(d.claim)
	case last != nil:
		s.returning = append(s.returning, name)
		d.is, d.why = machine.Filling, fmt.Sprintf("PersistentVolumeClaim %s gets volume %s, which has its data since the machine moved", name, last.Name)
		switch (&displaced{volume: last, claim: d.claim}).facts().Claim {
		case replace.Stranger:
			d.is, d.why = machine.Failed, inTheWay(name, last)
		case replace.Leaving:
			d.why += ", as soon as the claim that it had is gone: it stays while some other pod uses it"
		case replace.Old, replace.Absent, replace.Open, replace.Bound:
		}
	case d.pv != nil && d.pv.Annotations[replaced.By] != "":
		d.is, d.why = machine.Failed, outdated(d.claim.Name, d.pv)
	}
	return nil
}

// inTheWay is said of a claim that somebody made under the name of one whose data moved. It has a volume of its own, perhaps with data,
// so it is not ours to delete.
func inTheWay(claim string, last *replaced.Volume) string {
	return fmt.Sprintf("somebody made PersistentVolumeClaim %s anew, with another volume, while the machine's data was on volume %s: "+
		"delete that claim, and the machine goes on with its own data; or, to go on with that claim and lose what the machine wrote, "+
		"take the label %s off PersistentVolume %s", claim, last.Name, replaced.Label, last.Name)
}

func outdated(claim string, pv *corev1.PersistentVolume) string {
	return fmt.Sprintf("PersistentVolumeClaim %s has the data of before the machine moved; what it wrote since was on volume %s, which is gone: "+
		"restore it from a backup, or take the annotation %s off PersistentVolume %s to go on with the old data", claim, pv.Annotations[replaced.By], replaced.By, pv.Name)
}

var errOutdated = errors.New("the disk has old data")

// current asks the server, not the cache, whether the data of a disk that is about to be taken is still on its volume.
func (r *Reconciler) current(ctx context.Context, d disk) error {
	if d.pv == nil {
		return nil
	}
	pv, err := cluster.Get[corev1.PersistentVolume](ctx, r.live, "", d.pv.Name)
	if err != nil || pv == nil || pv.Annotations[replaced.By] == "" {
		return err
	}
	return fmt.Errorf("%w: %s", errOutdated, outdated(d.claim.Name, pv))
}

// unreplaced asks the server, not the cache, whether the data of the claims that a pod is about to be made with is on their volumes.
func (r *Reconciler) unreplaced(ctx context.Context, s *run) error {
	for _, d := range s.disks {
		if !d.stays() {
			continue
		}
		last, _, err := replaced.Of(ctx, r.live, s.instance.Namespace, d.claim.Name)
		if err != nil {
			return err
		}
		if last != nil {
			return notYet(d.claim.Name)
		}
	}
	return nil
}

// returnAll brings the claims one step nearer to the volumes that have their data, and says whether all have them.
func (r *Reconciler) returnAll(ctx context.Context, namespace string, claims []string) (bool, error) {
	all := true
	for _, name := range claims {
		done, err := r.returnOne(ctx, namespace, name)
		if err != nil {
			return false, err
		}
		all = all && done
	}
	return all, nil
}

// displaced is a claim whose data is on another volume, read from the server.
type displaced struct {
	volume      *replaced.Volume
	earlier     []replaced.Volume
	claim       *corev1.PersistentVolumeClaim // nil: there is none
	replacement *corev1.PersistentVolumeClaim
	used        bool
}

func (r *Reconciler) returnOne(ctx context.Context, namespace, name string) (bool, error) {
	d := &displaced{}
	var err error
	if d.volume, d.earlier, err = replaced.Of(ctx, r.live, namespace, name); err != nil || d.volume == nil {
		return err == nil, err
	}
	if d.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, namespace, name); err != nil {
		return false, err
	}
	if d.replacement, err = r.claimOf(ctx, namespace, d.volume.Record.Replacement, d.volume.Record.UID); err != nil {
		return false, err
	}
	record, err := cluster.Get[accessv1.DiskAccess](ctx, r.live, "", identity.Volume(d.volume.PersistentVolume).Name())
	if err != nil {
		return false, err
	}
	d.used = record != nil && len(record.Spec.Holders) > 0
	facts := d.facts()
	plan := replace.Decide(facts)
	log.FromContext(ctx).V(1).Info("decided", "claim", name, "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		if err := r.actReplaced(ctx, a, d); err != nil {
			return false, fmt.Errorf("%s of claim %s: %w", a, name, err)
		}
	}
	return plan.Done, nil
}

func (r *Reconciler) claimOf(ctx context.Context, namespace, name string, uid types.UID) (*corev1.PersistentVolumeClaim, error) {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, namespace, name)
	if err != nil || c == nil || c.UID != uid {
		return nil, err
	}
	return c, nil
}

func (d *displaced) facts() replace.Facts {
	f := replace.Facts{Used: d.used, Replacement: d.replacement != nil, Earlier: len(d.earlier) > 0}
	c, pv := d.claim, d.volume
	if c != nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == c.UID {
		f.Volume = replace.Given
	}
	switch {
	case c == nil:
		f.Claim = replace.Absent
	case c.DeletionTimestamp != nil:
		f.Claim = replace.Leaving
	case f.Volume == replace.Given && c.Status.Phase == corev1.ClaimBound && c.Spec.VolumeName == pv.Name:
		f.Claim = replace.Bound
	case c.UID == pv.Record.Old:
		f.Claim = replace.Old
	case c.Spec.VolumeName == "" || c.Spec.VolumeName == pv.Name:
		f.Claim = replace.Open
	default:
		f.Claim = replace.Stranger
	}
	return f
}

func (r *Reconciler) actReplaced(ctx context.Context, a replace.Action, d *displaced) error {
	switch a {
	case replace.Note:
		record := d.volume.Record
		if same(record.As, asMade(d.claim)) {
			return nil
		}
		record.As = asMade(d.claim)
		next, err := replaced.Bearing(d.volume.PersistentVolume, record)
		if err != nil {
			return err
		}
		return r.cluster.Change(ctx, d.volume.PersistentVolume, next)
	case replace.DropClaim:
		if err := r.cluster.AwaitClaim(ctx, r.live, d.claim.Namespace, d.claim.Name); err != nil {
			return err
		}
		return r.cluster.Delete(ctx, d.claim)
	case replace.MakeClaim:
		return r.cluster.Create(ctx, d.again())
	case replace.Give:
		return r.cluster.Rebind(ctx, d.volume.PersistentVolume, d.volume.Record.UID, d.claim)
	case replace.DropReplacement:
		if d.replacement == nil {
			return nil
		}
		return r.cluster.Delete(ctx, d.replacement)
	case replace.DropEarlier:
		return r.dropEarlier(ctx, d.earlier)
	case replace.Clear:
		return r.cluster.Change(ctx, d.volume.PersistentVolume, replaced.Cleared(d.volume.PersistentVolume))
	}
	return fmt.Errorf("%s is not an action on a claim", a)
}

// again is the claim as it was, for the volume that has its data. It names the volume, so that nobody fills it or makes another.
func (d *displaced) again() *corev1.PersistentVolumeClaim {
	record := d.volume.Record
	c := &corev1.PersistentVolumeClaim{}
	switch {
	case record.As != nil:
		c = record.As.DeepCopy()
	case d.replacement != nil: // somebody had deleted it before the data moved
		c.Spec = *d.replacement.Spec.DeepCopy()
	}
	c.Namespace, c.Name, c.Spec.VolumeName = record.Namespace, record.Claim, d.volume.Name
	return c
}

// returnNames gives the claims of a machine that has stopped the volumes that have their data.
func (r *Reconciler) returnNames(ctx context.Context, w *whole) (bool, error) {
	if w.run != nil || w.vm.DeletionTimestamp != nil {
		return true, nil
	}
	// Those of its template, whoever moved them, and those that were added while it ran.
	due, err := replaced.ClaimsOf(ctx, r.reader, w.vm.Namespace, w.vm.Name)
	if err != nil {
		return false, err
	}
	for _, v := range newInstance(w.vm).Spec.Volumes {
		name, _ := render.ClaimOf(v)
		if name == "" || slices.Contains(due, name) {
			continue
		}
		last, _, err := replaced.Of(ctx, r.reader, w.vm.Namespace, name)
		if err != nil {
			return false, err
		}
		if last != nil {
			due = append(due, name)
		}
	}
	return r.returnAll(ctx, w.vm.Namespace, due)
}
