package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/claimusers"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/handover"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// sends are the volumes whose disks are sent to a target: those that it has other claims for.
func sends(target *corev1.Pod) []string { return slices.Sorted(maps.Keys(diskstate.Others(target))) }

// opens: a target on the guest's own node opens the claim that the disk is in, beside its source, as it does with one that all nodes can
// have. A disk that was added comes through a pod of its own, and one that is in a replacement is known by the migration that made it: both
// are sent, as to another node.
func opens(s *observed.Instance, d diskstate.Disk) bool {
	own := slices.ContainsFunc(s.Object.Spec.Volumes, func(v kubevirt.Volume) bool {
		name, _ := render.ClaimOf(v)
		return v.Name == d.Name && name == d.Claim.Name
	})
	return own && slices.ContainsFunc(s.Disks, func(o diskstate.Disk) bool { return o.Name == d.Name }) &&
		!slices.Contains(d.Claim.Spec.AccessModes, corev1.ReadWriteOncePod) // which two pods cannot have anywhere
}

// makeReplacements makes the claims that the target has in place of those that stay, and says for which volume which; here: the target is
// on the node that they stay on.
func (r *Reconciler) makeReplacements(ctx context.Context, v *Move, here bool) (map[string]string, error) {
	out, whole := map[string]string{}, v.Run.WholeCopies()
	for _, d := range v.Run.GuestDisks() {
		if _, left := whole[d.Name]; left || !d.Stays() || v.Run.Updates.Has(d.Name) || here && opens(v.Run, d) {
			continue
		}
		c := handover.Replacement(v.Migration, d)
		out[d.Name] = c.Name
		there, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Read.Cached, c.Namespace, c.Name)
		if err == nil && there == nil {
			err = r.Cluster.Create(ctx, c)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// disksAt are the disks as the target has them, without the masters that it has no use for.
func (r *Reconciler) disksAt(ctx context.Context, v *Move) ([]diskstate.Disk, error) {
	whole := launcherpod.Machine(v.Target).Whole
	disks := slices.DeleteFunc(v.Run.GuestDisks(), func(d diskstate.Disk) bool { _, left := whole[d.Name]; return left })
	others := diskstate.Others(v.Target)
	for i := range disks {
		d := &disks[i]
		name, ok := others[d.Name]
		if !ok {
			continue
		}
		var err error
		if d.Claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Read.Live, v.Migration.Namespace, name); err != nil {
			return nil, err
		}
		if err := r.Read.Identify(ctx, d); err != nil {
			return nil, err
		}
		if d.Claim == nil || d.PV == nil || d.PV.Name != d.Claim.Spec.VolumeName {
			return nil, diskstate.NotYet(name)
		}
	}
	return disks, nil
}

// unnamed returns the claims of a launcher's disks that do not have the volumes yet that the disks were sent to, each with what it
// waits for. It reads from the API server and not the cache, because others act on the result at once.
func (r *Reconciler) unnamed(ctx context.Context, target *corev1.Pod) ([]string, error) {
	var out []string
	moved := diskstate.Replacements(target)
	for _, v := range launcherpod.Machine(target).Spec.Volumes {
		name, _ := render.ClaimOf(v)
		if moved[v.Name] == "" {
			continue
		}
		current, err := replacedclaim.Current(ctx, r.Read.Live, target.Namespace, name)
		if err != nil {
			return nil, err
		}
		if current {
			continue
		}
		why, err := r.inUse(ctx, target.Namespace, name)
		if err != nil {
			return nil, err
		}
		out = append(out, "PersistentVolumeClaim "+name+why)
	}
	return out, nil
}

// inUse says that a claim that is being deleted stays while a pod uses it; empty if it does not.
func (r *Reconciler) inUse(ctx context.Context, namespace, name string) (string, error) {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Read.Live, namespace, name)
	if err != nil || c == nil || c.DeletionTimestamp == nil {
		return "", err
	}
	users, err := claimusers.Of(ctx, r.Read.Cached, c)
	if err != nil || len(users) == 0 {
		return "", err
	}
	return fmt.Sprintf(" has the data of before the move and goes when pod %s no longer uses it", users[0].Name), nil
}
