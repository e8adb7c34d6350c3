package diskstate

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// Replaced finds out whether the data of a claim is on another volume: a machine is not started with such a claim. It reports whether the claim is about to get that volume.
func (r *Reader) Replaced(ctx context.Context, s *Run, d *Disk, name string) (returns bool, err error) {
	if s.Launcher != nil {
		return false, nil // it was started before, or has the replacement
	}
	last, _, err := replacedclaim.Of(ctx, r.Cached, s.Object.Namespace, name)
	switch {
	case err != nil:
		return false, err
	case Partial(d.Claim) != "":
		d.State, d.Why = machine.Failed, Partial(d.Claim)
	case last != nil:
		d.State, d.Why = machine.Filling, fmt.Sprintf("PersistentVolumeClaim %s gets volume %s, which has its data since the machine moved", name, last.Name)
		switch {
		case foreign(d.Claim, last):
			d.State, d.Why = machine.Failed, inTheWay(name, last)
		case d.Claim != nil && d.Claim.DeletionTimestamp != nil:
			d.Why += ", as soon as the claim that it had is gone: it stays while some other pod uses it"
		}
		return true, nil
	case d.PV != nil && d.PV.Annotations[replacedclaim.By] != "":
		d.State, d.Why = machine.Failed, replacedclaim.Outdated(d.Claim.Name, d.PV)
	}
	return false, nil
}

// inTheWay is the message about a claim that a user made under the name of a claim whose data moved. It has a volume of its own,
// perhaps with data, so it is not deleted.
func inTheWay(claim string, last *replacedclaim.Volume) string {
	return fmt.Sprintf("somebody made PersistentVolumeClaim %s again, with another volume, while the machine's data was on volume %s: "+
		"delete that claim, and the machine goes on with its own data; or, to go on with that claim and lose what the machine wrote, "+
		"take the label %s off PersistentVolume %s", claim, last.Name, replacedclaim.Label, last.Name)
}

// foreign reports whether the claim was made by a user, with a volume of its own.
func foreign(c *corev1.PersistentVolumeClaim, last *replacedclaim.Volume) bool {
	if c == nil || c.DeletionTimestamp != nil || c.UID == last.Record.Old {
		return false
	}
	return !slices.Contains([]string{"", last.Name, replacedclaim.AliasName(last.UID)}, c.Spec.VolumeName)
}
