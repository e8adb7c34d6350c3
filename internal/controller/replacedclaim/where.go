package replacedclaim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
)

// Place is where the data of a claim is.
type Place int

// The places.
const (
	Here   Place = iota // on the volume that the claim has
	Coming              // on another volume, which the claim gets soon
	Lost                // it was on a volume that is gone
)

// Where returns the place of a claim's data, and a message about why it is not on the claim's volume. All controllers that read a
// claim use it: machines, clones, exports, snapshots and populators.
type Where struct {
	Place Place
	Why   string
	// Replacement is the claim of a running launcher that has the same volume, or the volume that the claim gets; empty if there is none.
	Replacement string
}

// Data returns where the data of a claim is.
func Data(ctx context.Context, reader client.Reader, claim *corev1.PersistentVolumeClaim) (Where, error) {
	last, _, err := Of(ctx, reader, claim.Namespace, claim.Name)
	if err != nil {
		return Where{}, err
	}
	pv, err := cluster.VolumeOf(ctx, reader, claim)
	if err != nil {
		return Where{}, err
	}
	switch {
	case last == nil && pv != nil && pv.Annotations[By] != "":
		return Where{Place: Lost, Why: Outdated(claim.Name, pv)}, nil
	case last == nil:
		return Where{}, nil
	case pv != nil && (pv.Name == last.Name || pv.Name == AliasName(last.UID)):
		return Where{Replacement: last.Record.Replacement}, nil
	}
	return Where{Place: Coming, Replacement: last.Record.Replacement,
		Why: fmt.Sprintf("PersistentVolumeClaim %s gets volume %s, which has its data since the machine moved", claim.Name, last.Name)}, nil
}

// Outdated says that a claim has the data of before a move, and what to do.
func Outdated(claim string, pv *corev1.PersistentVolume) string {
	return fmt.Sprintf("PersistentVolumeClaim %s has the data of before the machine moved; what it wrote since was on volume %s, which is gone: "+
		"restore it from a backup, or take the annotation %s off PersistentVolume %s to go on with the old data", claim, pv.Annotations[By], By, pv.Name)
}

// Current reports whether the claim of that name is bound, and what it has is the data of now.
func Current(ctx context.Context, reader client.Reader, namespace, name string) (bool, error) {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, reader, namespace, name)
	if err != nil || c == nil || c.DeletionTimestamp != nil || c.Status.Phase != corev1.ClaimBound {
		return false, err
	}
	where, err := Data(ctx, reader, c)
	return where.Place == Here, err
}
