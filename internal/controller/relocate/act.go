package relocate

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/decide/relocate"
	"github.com/berth-vm/berth/internal/names"
)

func (r *Reconciler) act(ctx context.Context, a relocate.Action, d *moved) error {
	switch a {
	case relocate.Note:
		return r.note(ctx, d)
	case relocate.DropClaim:
		if err := r.Cluster.AwaitClaim(ctx, r.Live, d.key.Namespace, d.key.Name); err != nil {
			return err
		}
		return r.Cluster.Delete(ctx, d.claim)
	case relocate.FreeClaim:
		return r.free(ctx, d)
	case relocate.MakeClaim:
		return r.Cluster.Create(ctx, d.again(d.volume.Name))
	case relocate.MakeNamed:
		c := d.again(replacedclaim.AliasName(d.volume.UID))
		c.Finalizers = append(c.Finalizers, replacedclaim.Finalizer)
		return r.Cluster.Create(ctx, c)
	case relocate.MakeAlias:
		return r.makeAlias(ctx, d)
	case relocate.DropAlias:
		return r.Cluster.Delete(ctx, d.alias())
	case relocate.Give:
		return r.Cluster.Rebind(ctx, d.volume.PersistentVolume, d.volume.Record.UID, d.claim)
	case relocate.DropReplacement:
		if d.replacement == nil {
			return nil
		}
		return r.Cluster.Delete(ctx, d.replacement)
	case relocate.DropVolume:
		return r.Cluster.Delete(ctx, d.volume.PersistentVolume)
	case relocate.DropEarlier:
		return r.dropEarlier(ctx, d)
	case relocate.Finish:
		return r.finish(ctx, d)
	case relocate.Abandon, relocate.Clear:
		return r.Cluster.Change(ctx, d.volume.PersistentVolume, d.volume.Cleared())
	}
	return fmt.Errorf("%s is not an action on a claim", a)
}

// note writes on the volume what the claim is like, if that changed since the record was written.
func (r *Reconciler) note(ctx context.Context, d *moved) error {
	record := d.volume.Record
	record.As = replacedclaim.AsMade(d.claim)
	next, err := replacedclaim.WithRecord(d.volume.PersistentVolume, record)
	if err != nil || next.Annotations[replacedclaim.Annotation] == d.volume.Annotations[replacedclaim.Annotation] {
		return err
	}
	return r.Cluster.Change(ctx, d.volume.PersistentVolume, next)
}

// free removes our finalizer from the claim.
func (r *Reconciler) free(ctx context.Context, d *moved) error {
	if d.claim == nil || !slices.Contains(d.claim.Finalizers, replacedclaim.Finalizer) {
		return nil
	}
	if d.volume == nil && d.alias() != nil {
		return nil // an alias that is not finished yet
	}
	next := d.claim.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == replacedclaim.Finalizer })
	return r.Cluster.Change(ctx, d.claim, next)
}

// again returns a new claim like the old one, for the volume that has its data. It names the volume, so that no other is
// provisioned and nothing fills it.
func (d *moved) again(volume string) *corev1.PersistentVolumeClaim {
	record := d.volume.Record
	c := &corev1.PersistentVolumeClaim{}
	switch {
	case record.As != nil:
		c = record.As.DeepCopy()
	case d.replacement != nil: // it was deleted before the data moved
		c.Spec = *d.replacement.Spec.DeepCopy()
	}
	c.Namespace, c.Name, c.Spec.VolumeName = record.Namespace, record.Claim, volume
	if d.replacement != nil && d.replacement.Annotations[names.SelectedNode] != "" {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[names.SelectedNode] = d.replacement.Annotations[names.SelectedNode]
	}
	return c
}

// makeAlias makes the second PersistentVolume. A record that was written by an older version did not keep its volume.
func (r *Reconciler) makeAlias(ctx context.Context, d *moved) error {
	v := *d.volume
	if v.Record.Policy == "" {
		next, err := replacedclaim.WithRecord(v.PersistentVolume, v.Record)
		if err != nil {
			return err
		}
		return r.Cluster.Change(ctx, v.PersistentVolume, next) // the next step makes the alias
	}
	alias, err := v.Alias(d.claim)
	if err != nil {
		return err
	}
	return r.Cluster.Create(ctx, alias)
}

// dropEarlier removes the volumes of moves before the last. An alias goes first: the data goes with the volume that was first. The record
// of each stays until it is gone: it says that the data was there before.
func (r *Reconciler) dropEarlier(ctx context.Context, d *moved) error {
	for _, v := range d.earlier {
		if err := r.dropOne(ctx, d, v); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) dropOne(ctx context.Context, d *moved, v replacedclaim.Volume) error {
	at := slices.IndexFunc(d.aliases, func(pv corev1.PersistentVolume) bool { return pv.Name == replacedclaim.AliasName(v.UID) })
	if at >= 0 {
		return r.Cluster.Delete(ctx, &d.aliases[at])
	}
	if v.Record.Policy != "" && v.Spec.PersistentVolumeReclaimPolicy != v.Record.Policy {
		if err := client.IgnoreNotFound(r.Cluster.Change(ctx, v.PersistentVolume, v.WithPolicy())); err != nil {
			return err
		}
		return nil // the rest when the volume is seen with it
	}
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Live, v.Record.Namespace, v.Record.Replacement)
	if err != nil {
		return err
	}
	if c != nil && c.UID == v.Record.UID {
		return r.Cluster.Delete(ctx, c)
	}
	return client.IgnoreNotFound(r.Cluster.Change(ctx, v.PersistentVolume, v.Cleared()))
}

// finish makes aliases whose first volume is gone ordinary volumes.
func (r *Reconciler) finish(ctx context.Context, d *moved) error {
	left := d.aliases[:0:0]
	for _, alias := range d.aliases {
		f, _ := replacedclaim.FirstOf(&alias)
		first, err := cluster.Get[corev1.PersistentVolume](ctx, r.Live, "", f.Volume)
		if err != nil {
			return err
		}
		if first != nil && first.UID == f.UID {
			left = append(left, alias) // it has lost its record, and goes first
			continue
		}
		if err := r.Cluster.Change(ctx, &alias, replacedclaim.Finished(&alias, f)); err != nil {
			return err
		}
	}
	d.aliases = left
	return nil
}
