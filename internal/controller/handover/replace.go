package handover

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
)

// A claim that one node can have at a time does not move with its guest: the target has another in its place, of the same class, size
// and mode, and the disk is sent into it. docs/decisions/0015 and 0027 have the reasons.

// labelMigration on a replacement is the UID of the migration that it was made for.
const labelMigration = "berth.dev/migration"

// Replacement returns a claim like the one that a disk is in, with the same owners, so that it goes when they do. It does not belong in a
// backup: once the guest has moved, the claim under its own name has the same volume.
func Replacement(m *kubevirt.VirtualMachineInstanceMigration, d diskstate.Disk) *corev1.PersistentVolumeClaim {
	was := d.Claim
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: was.Namespace, Name: render.ReplacementName(m.UID, d.Name),
			Labels: map[string]string{labelMigration: string(m.UID), render.LabelVolume: d.Name, names.NoBackup: "true"}},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: was.Spec.AccessModes, StorageClassName: was.Spec.StorageClassName, VolumeMode: was.Spec.VolumeMode,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(d.Capacity(), resource.BinarySI)}}},
	}
	for _, o := range was.OwnerReferences {
		o.Controller, o.BlockOwnerDeletion = nil, nil
		c.OwnerReferences = append(c.OwnerReferences, o)
	}
	return c
}

// recordReplaced records, on the volumes of a launcher that a guest has moved to, which claim's data they have. It is written
// before any other record of that is deleted. A pod is a target only if a migration of the instance says so: any user who may
// create pods can write a target's name, owner and orders. The finalizer of a migration stays until this is written, so a deleted
// migration has nothing to record.
func (r *Recorder) recordReplaced(ctx context.Context, target *corev1.Pod, i *kubevirt.VirtualMachineInstance) error {
	if migrates, err := r.migrates(ctx, target, i); err != nil || !migrates {
		return err
	}
	others := diskstate.Replacements(target)
	for _, v := range launcherpod.Machine(target).Spec.Volumes {
		name, ok := others[v.Name]
		if !ok {
			continue
		}
		root, _ := render.ClaimOf(v)
		if err := r.Record(ctx, i, root, name, true); err != nil {
			return err
		}
	}
	return r.adopt(ctx, target, i)
}

// migrates reports whether a migration that brings the instance's guest to this launcher exists on the server.
func (r *Recorder) migrates(ctx context.Context, target *corev1.Pod, i *kubevirt.VirtualMachineInstance) (bool, error) {
	var list kubevirt.VirtualMachineInstanceMigrationList
	if err := r.Live.List(ctx, &list, client.InNamespace(i.Namespace)); err != nil {
		return false, fmt.Errorf("list migrations: %w", err)
	}
	id := launcherpod.Incoming(target)
	return id != "" && slices.ContainsFunc(list.Items, func(m kubevirt.VirtualMachineInstanceMigration) bool {
		return m.UID == id && m.Spec.VMIName == i.Name
	}), nil
}

// Record writes on the volume of the claim name that it has the data of the claim root.
func (r *Recorder) Record(ctx context.Context, i *kubevirt.VirtualMachineInstance, root, name string, live bool) error {
	namespace := i.Namespace
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Live, namespace, name)
	if err != nil {
		return err
	}
	last, _, err := replacedclaim.Of(ctx, r.Live, namespace, root)
	if err != nil || c == nil {
		return err
	}
	pv, err := cluster.VolumeOf(ctx, r.Live, c)
	if err != nil || pv == nil {
		return err
	}
	old, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Live, namespace, root)
	if err != nil {
		return err
	}
	switch {
	case last != nil && last.Record.UID == c.UID:
		return r.markOld(ctx, old, last.Record, pv.Name)
	case pv.Annotations[replacedclaim.Annotation] != "":
		return nil // the guest was here and has moved on
	}
	record := replacedclaim.Record{Namespace: namespace, Claim: root, Machine: i.Name, Live: live, Turn: 1, Replacement: c.Name, UID: c.UID}
	if last != nil {
		record.Turn, record.As = last.Record.Turn+1, last.Record.As
	}
	if old != nil {
		record.Old, record.As = old.UID, replacedclaim.AsMade(old)
	}
	next, err := replacedclaim.WithRecord(pv, record)
	if err != nil {
		return err
	}
	if err := r.Cluster.Change(ctx, pv, next); err != nil {
		return err
	}
	return r.markOld(ctx, old, record, pv.Name)
}

// markOld notes on the volume that a claim had when its data moved that the data is elsewhere. A claim that was made since has the data.
func (r *Recorder) markOld(ctx context.Context, old *corev1.PersistentVolumeClaim, record replacedclaim.Record, by string) error {
	if old == nil || old.UID != record.Old {
		return nil
	}
	pv, err := cluster.VolumeOf(ctx, r.Live, old)
	if err != nil || pv == nil || pv.Name == by || pv.Annotations[replacedclaim.By] == by {
		return err
	}
	return r.Cluster.MarkAs(ctx, moveOwner, pv, cluster.Marks{Annotations: map[string]string{replacedclaim.By: by}})
}

// DropLeft deletes the claims that were made for a migration that failed. A claim whose volume has the data of a disk is never among
// them.
func (r *Recorder) DropLeft(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) error {
	var list corev1.PersistentVolumeClaimList
	if err := r.Live.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingLabels{labelMigration: string(m.UID)}); err != nil {
		return fmt.Errorf("list the claims of a migration: %w", err)
	}
	for i := range list.Items {
		c := &list.Items[i]
		if c.Name != render.ReplacementName(m.UID, c.Labels[render.LabelVolume]) || c.DeletionTimestamp != nil {
			continue
		}
		if recorded, err := r.recorded(ctx, c); err != nil || recorded {
			if err != nil {
				return err
			}
			continue
		}
		if err := r.Cluster.Delete(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// recorded: the claim's volume has, or had, the data of another claim's disk.
func (r *Recorder) recorded(ctx context.Context, c *corev1.PersistentVolumeClaim) (bool, error) {
	pv, err := cluster.VolumeOf(ctx, r.Live, c)
	return pv != nil && pv.Annotations[replacedclaim.Annotation] != "", err
}
