package relocate

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/decide/relocate"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/pods"
)

// moved is a claim whose data moved and all facts that its next step depends on, read once from the API server.
type moved struct {
	key         types.NamespacedName
	claim       *corev1.PersistentVolumeClaim // nil: there is none
	volume      *replacedclaim.Volume         // that the data moved to; nil: there is none, or it is gone
	earlier     []replacedclaim.Volume
	aliases     []corev1.PersistentVolume
	replacement *corev1.PersistentVolumeClaim // nil: it is gone
	mounted     bool                          // a pod that has not ended mounts the replacement
	held        bool                          // the volume's access record has a holder
	orphaned    bool
}

func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*moved, error) {
	d := &moved{key: key}
	var err error
	if d.volume, d.earlier, err = replacedclaim.Of(ctx, r.Live, key.Namespace, key.Name); err != nil {
		return nil, err
	}
	if d.aliases, err = replacedclaim.Aliases(ctx, r.Live, key.Namespace, key.Name); err != nil {
		return nil, err
	}
	if d.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Live, key.Namespace, key.Name); err != nil || d.volume == nil {
		return d, err
	}
	record := d.volume.Record
	if d.replacement, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Live, key.Namespace, record.Replacement); err != nil {
		return nil, err
	}
	if d.replacement != nil && d.replacement.UID != record.UID {
		d.replacement = nil // not this claim's
	}
	if d.mounted, err = r.mounts(ctx, key.Namespace, record.Replacement); err != nil {
		return nil, err
	}
	holders, err := r.Records.HoldersNow(ctx, identity.Volume(d.volume.PersistentVolume))
	if err != nil {
		return nil, err
	}
	d.held = len(holders) > 0
	d.orphaned, err = r.orphaned(ctx, d)
	return d, err
}

// mounts reports whether a pod that has not ended has the claim among its volumes.
func (r *Reconciler) mounts(ctx context.Context, namespace, claim string) (bool, error) {
	var list corev1.PodList
	if err := r.Reader.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{cacheindex.PodClaim: claim}); err != nil {
		return false, fmt.Errorf("list pods that use %s/%s: %w", namespace, claim, err)
	}
	return slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return !pods.Over(&p) }), nil
}

// orphaned reports whether a claim that is gone stays gone: its namespace is being deleted, or the machine or DataVolume that owned it is.
func (r *Reconciler) orphaned(ctx context.Context, d *moved) (bool, error) {
	if d.claim != nil {
		return false, nil
	}
	at, err := cluster.Get[corev1.Namespace](ctx, r.Live, "", d.key.Namespace)
	if err != nil || at == nil || at.DeletionTimestamp != nil {
		return err == nil, err
	}
	if d.volume.Record.As == nil {
		return false, nil
	}
	owner := metav1.GetControllerOf(d.volume.Record.As)
	if owner == nil {
		return false, nil
	}
	var there client.Object
	switch owner.Kind {
	case "VirtualMachine":
		there = &kubevirt.VirtualMachine{}
	case "DataVolume":
		there = &cdiv1.DataVolume{}
	default:
		return false, nil // the garbage collector deletes what is made for an owner that is gone
	}
	err = r.Live.Get(ctx, types.NamespacedName{Namespace: d.key.Namespace, Name: owner.Name}, there)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read the owner of claim %s: %w", d.key, err)
	}
	return err != nil || there.GetUID() != owner.UID || there.GetDeletionTimestamp() != nil, nil
}

// alias returns the alias of the volume that has the data; nil if there is none.
func (d *moved) alias() *corev1.PersistentVolume {
	at := slices.IndexFunc(d.aliases, func(pv corev1.PersistentVolume) bool {
		return d.volume == nil || pv.Name == replacedclaim.AliasName(d.volume.UID)
	})
	if at < 0 {
		return nil
	}
	return &d.aliases[at]
}

func (d *moved) facts() relocate.Facts {
	f := relocate.Facts{Replacement: d.replacement != nil, Earlier: len(d.earlier) > 0, Orphaned: d.orphaned}
	if a := d.alias(); a != nil {
		f.Alias = relocate.Stale
		if belongs(a, d.claim) {
			f.Alias = relocate.Reserved
		}
	}
	if d.volume == nil {
		return f
	}
	f.Volume = relocate.Lent
	if belongs(d.volume.PersistentVolume, d.claim) {
		f.Volume = relocate.Given
	}
	if d.mounted || d.held {
		f.Use = relocate.Held
		if d.volume.Record.Live {
			f.Use = relocate.Runs
		}
	}
	f.Claim = d.situation(f)
	if (f.Claim == relocate.Aliased || f.Claim == relocate.AliasLeaving) && !d.mounted {
		f.Use = relocate.Free // others use the volume by the claim's own name
	}
	return f
}

// belongs reports whether the volume belongs to the claim.
func belongs(pv *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	return c != nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == c.UID
}

// situation returns the claim's part of the facts.
func (d *moved) situation(f relocate.Facts) relocate.Claim {
	c, volume, alias := d.claim, d.volume.Name, replacedclaim.AliasName(d.volume.UID)
	switch {
	case c == nil:
		return relocate.Absent
	case f.Alias == relocate.Reserved && c.Spec.VolumeName == alias && c.Status.Phase == corev1.ClaimBound && c.DeletionTimestamp != nil:
		return relocate.AliasLeaving
	case c.DeletionTimestamp != nil:
		return relocate.Leaving
	case f.Alias == relocate.Reserved && c.Spec.VolumeName == alias && c.Status.Phase == corev1.ClaimBound:
		return relocate.Aliased
	case f.Volume == relocate.Given && c.Spec.VolumeName == volume && c.Status.Phase == corev1.ClaimBound:
		return relocate.Bound
	case d.outdated(c), c.Spec.VolumeName == volume && f.Use == relocate.Runs:
		return relocate.Old
	case c.Spec.VolumeName == alias:
		return relocate.Awaiting
	case c.Spec.VolumeName == "" || c.Spec.VolumeName == volume:
		return relocate.Open
	}
	return relocate.Stranger
}

// outdated reports whether the claim has a volume that the data moved away from.
func (d *moved) outdated(c *corev1.PersistentVolumeClaim) bool {
	return c.UID == d.volume.Record.Old || slices.ContainsFunc(d.earlier, func(v replacedclaim.Volume) bool {
		return c.Spec.VolumeName == replacedclaim.AliasName(v.UID) || belongs(v.PersistentVolume, c)
	})
}
