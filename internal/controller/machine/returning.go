package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// internal/controller/relocate gives claims the volumes that their data moved to. Until nothing of a move is left, nothing is started with
// the claim.

// returnAgain is how often a claim is looked at that is about to get its volume.
const returnAgain = time.Second

// observeReplaced: a machine is not started with a claim whose data is on another volume. It reports whether the claim is about to get that volume.
func (r *Reconciler) observeReplaced(ctx context.Context, s *base, d *disk, name string) (returns bool, err error) {
	if s.launcher != nil {
		return false, nil // it was started before, or has the replacement
	}
	last, _, err := replacedclaim.Of(ctx, r.reader, s.instance.Namespace, name)
	switch {
	case err != nil:
		return false, err
	case partial(d.claim) != "":
		d.is, d.why = machine.Failed, partial(d.claim)
	case last != nil:
		d.is, d.why = machine.Filling, fmt.Sprintf("PersistentVolumeClaim %s gets volume %s, which has its data since the machine moved", name, last.Name)
		switch {
		case foreign(d.claim, last):
			d.is, d.why = machine.Failed, inTheWay(name, last)
		case d.claim != nil && d.claim.DeletionTimestamp != nil:
			d.why += ", as soon as the claim that it had is gone: it stays while some other pod uses it"
		}
		return true, nil
	case d.pv != nil && d.pv.Annotations[replacedclaim.By] != "":
		d.is, d.why = machine.Failed, replacedclaim.Outdated(d.claim.Name, d.pv)
	}
	return false, nil
}

// inTheWay is said of a claim that somebody made under the name of one whose data moved. It has a volume of its own, perhaps with data,
// so it is not ours to delete.
func inTheWay(claim string, last *replacedclaim.Volume) string {
	return fmt.Sprintf("somebody made PersistentVolumeClaim %s again, with another volume, while the machine's data was on volume %s: "+
		"delete that claim, and the machine goes on with its own data; or, to go on with that claim and lose what the machine wrote, "+
		"take the label %s off PersistentVolume %s", claim, last.Name, replacedclaim.Label, last.Name)
}

// foreign reports whether somebody made the claim with a volume of its own.
func foreign(c *corev1.PersistentVolumeClaim, last *replacedclaim.Volume) bool {
	if c == nil || c.DeletionTimestamp != nil || c.UID == last.Record.Old {
		return false
	}
	return !slices.Contains([]string{"", last.Name, replacedclaim.AliasName(last.UID)}, c.Spec.VolumeName)
}

var errOutdated = errors.New("the disk has old data")

// current asks the server, not the cache, whether the data of a disk that is about to be taken is still on its volume.
func (r *Reconciler) current(ctx context.Context, d disk) error {
	if d.pv == nil {
		return nil
	}
	pv, err := cluster.Get[corev1.PersistentVolume](ctx, r.live, "", d.pv.Name)
	if err != nil || pv == nil || pv.Annotations[replacedclaim.By] == "" {
		return err
	}
	return fmt.Errorf("%w: %s", errOutdated, replacedclaim.Outdated(d.claim.Name, pv))
}

// unreplaced asks the server, not the cache, whether the data of the claims that a pod is about to be made with is on their volumes.
func (r *Reconciler) unreplaced(ctx context.Context, s *run) error {
	for _, d := range s.disks {
		if !d.stays() {
			continue
		}
		last, _, err := replacedclaim.Of(ctx, r.live, s.instance.Namespace, d.claim.Name)
		if err != nil {
			return err
		}
		if last != nil {
			return notYet(d.claim.Name)
		}
	}
	return nil
}
