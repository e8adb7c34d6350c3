package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/claimusers"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/pkg/claim"
)

// A claim that one node can have at a time does not move with its guest: the target has another in its place, of the same class, size
// and mode, and the disk is sent into it. docs/decisions/0015 and 0027 have the reasons.

// labelMigration on a replacement is the UID of the migration that it was made for.
const labelMigration = "berth.dev/migration"

// stays: the disk's claim is left behind when the guest moves.
func (d disk) stays() bool { return d.claim != nil && d.direct == nil && !shared(d.claim) }

// rooted is why the disk of a claim that stays cannot be sent into another; empty if it can.
func (s *run) rooted(d disk) (cause state.FixedCause, detail string) {
	name, drive := d.claim.Name, s.drive(d.name)
	class := s.classes[ptr.Deref(d.claim.Spec.StorageClassName, "")]
	switch {
	case d.copied != nil:
		return state.CauseClaimCopied, name
	case d.mode != accessv1.WriteExclusive:
		return state.CauseClaimShared, name
	case drive.LUN != nil || drive.CDRom != nil:
		return state.CauseClaimDrive, name
	case class == nil:
		return state.CauseClassMissing, name
	case class.Provisioner == "kubernetes.io/no-provisioner":
		return state.CauseClassStatic, fmt.Sprintf("PersistentVolumeClaim %s, and StorageClass %s", name, class.Name)
	case !claim.Waits(class) && d.pv != nil && d.pv.Spec.NodeAffinity != nil:
		return state.CauseClassImmediate, fmt.Sprintf("PersistentVolumeClaim %s, and StorageClass %s", name, class.Name)
	}
	return "", ""
}

// observeClasses reads the classes of claims that do not move by themselves.
func (r *Reconciler) observeClasses(ctx context.Context, s *run) error {
	if s.launcher == nil {
		return nil
	}
	return r.readClasses(ctx, s)
}

func (r *Reconciler) readClasses(ctx context.Context, s *run) error {
	s.classes = map[string]*storagev1.StorageClass{}
	for _, d := range s.guestDisks() {
		name := ""
		if d.stays() {
			name = ptr.Deref(d.claim.Spec.StorageClassName, "")
		}
		if name == "" || s.classes[name] != nil {
			continue
		}
		class, err := cluster.Get[storagev1.StorageClass](ctx, r.reader, "", name)
		if err != nil {
			return err
		}
		s.classes[name] = class
	}
	return nil
}

// claimIn is the claim that a launcher has for a volume: the one that the volume names, or its replacement.
func claimIn(launcher *corev1.Pod, v kubevirt.Volume) string {
	name, _ := render.ClaimOf(v)
	if name == "" || launcherpod.Incoming(launcher) == "" {
		return name
	}
	m := launcherpod.Machine(launcher)
	if m.Updated[v.Name] == name {
		if in := updatedClaims(launcher)[v.Name]; hasClaim(launcher, v.Name, in) {
			return in // the guest has come, and the instance is about to be told
		}
	}
	other := render.ReplacementName(types.UID(m.Incoming), v.Name)
	was := func(o kubevirt.Volume) bool {
		of, _ := render.ClaimOf(o)
		return o.Name == v.Name && of == name
	}
	if hasClaim(launcher, v.Name, other) && slices.ContainsFunc(m.Spec.Volumes, was) {
		return other
	}
	return name
}

// hasClaim: the pod has that claim as its volume of that name.
func hasClaim(p *corev1.Pod, volume, claim string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(x corev1.Volume) bool {
		return x.Name == volume && x.PersistentVolumeClaim != nil && x.PersistentVolumeClaim.ClaimName == claim
	})
}

// replacements are the volumes for which a launcher has another claim, and that claim's name. What its instance lists now is no matter: a
// disk that is removed while the guest moves has moved.
func replacements(launcher *corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, v := range launcherpod.Machine(launcher).Spec.Volumes {
		name, _ := render.ClaimOf(v)
		if in := claimIn(launcher, v); in != name {
			out[v.Name] = in
		}
	}
	return out
}

// sends are the volumes whose disks are sent to a target: those that it has other claims for.
func sends(target *corev1.Pod) []string { return slices.Sorted(maps.Keys(others(target))) }

// others are the claims that a target has in place of those that the guest's disks are in, by volume.
func others(target *corev1.Pod) map[string]string {
	out := replacements(target)
	maps.Copy(out, updatedClaims(target))
	return out
}

// replacement returns a claim like the one that a disk is in, with the same owners, so that it goes when they do. It does not belong in a
// backup: once the guest has moved, the claim under its own name has the same volume.
func replacement(m *kubevirt.VirtualMachineInstanceMigration, d disk) *corev1.PersistentVolumeClaim {
	was := d.claim
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: was.Namespace, Name: render.ReplacementName(m.UID, d.name),
			Labels: map[string]string{labelMigration: string(m.UID), render.LabelVolume: d.name, names.NoBackup: "true"}},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: was.Spec.AccessModes, StorageClassName: was.Spec.StorageClassName, VolumeMode: was.Spec.VolumeMode,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(d.room(), resource.BinarySI)}}},
	}
	for _, o := range was.OwnerReferences {
		o.Controller, o.BlockOwnerDeletion = nil, nil
		c.OwnerReferences = append(c.OwnerReferences, o)
	}
	return c
}

// opens: a target on the guest's own node opens the claim that the disk is in, beside its source, as it does with one that all nodes can
// have. A disk that was added comes through a pod of its own, and one that is in a replacement is known by the migration that made it: both
// are sent, as to another node.
func (s *run) opens(d disk) bool {
	own := slices.ContainsFunc(s.instance.Spec.Volumes, func(v kubevirt.Volume) bool {
		name, _ := render.ClaimOf(v)
		return v.Name == d.name && name == d.claim.Name
	})
	return own && slices.ContainsFunc(s.disks, func(o disk) bool { return o.name == d.name }) &&
		!slices.Contains(d.claim.Spec.AccessModes, corev1.ReadWriteOncePod) // which two pods cannot have anywhere
}

// makeReplacements makes the claims that the target has in place of those that stay, and says for which volume which; here: the target is
// on the node that they stay on.
func (r *Reconciler) makeReplacements(ctx context.Context, v *move, here bool) (map[string]string, error) {
	out := map[string]string{}
	for _, d := range v.run.guestDisks() {
		if !d.stays() || v.run.updates.has(d.name) || here && v.run.opens(d) {
			continue
		}
		c := replacement(v.migration, d)
		out[d.name] = c.Name
		there, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, c.Namespace, c.Name)
		if err == nil && there == nil {
			err = r.cluster.Create(ctx, c)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// disksAt are the disks as the target has them.
func (r *Reconciler) disksAt(ctx context.Context, v *move) ([]disk, error) {
	disks := v.run.guestDisks()
	others := others(v.target)
	for i := range disks {
		d := &disks[i]
		name, ok := others[d.name]
		if !ok {
			continue
		}
		var err error
		if d.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, v.migration.Namespace, name); err != nil {
			return nil, err
		}
		if err := r.identify(ctx, d); err != nil {
			return nil, err
		}
		if d.claim == nil || d.pv == nil || d.pv.Name != d.claim.Spec.VolumeName {
			return nil, notYet(name)
		}
	}
	return disks, nil
}

var errUnbound = errors.New("it has no volume yet")

// notYet has a step tried again: a claim has no volume yet, or the cache does not know of it.
func notYet(claim string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, claim, errUnbound)
}

// recordReplaced writes on the volumes of a launcher that a guest has come to whose data they have now. It is written before anything
// is let go that says the same. A pod is a target only if a migration of the instance says so: anybody who may create pods can write a
// target's name, owner and orders. A migration stays until this is written (its finalizer), so one that is gone has nothing to record.
func (r *Reconciler) recordReplaced(ctx context.Context, target *corev1.Pod, i *kubevirt.VirtualMachineInstance) error {
	if migrates, err := r.migrates(ctx, target, i); err != nil || !migrates {
		return err
	}
	others := replacements(target)
	for _, v := range launcherpod.Machine(target).Spec.Volumes {
		name, ok := others[v.Name]
		if !ok {
			continue
		}
		root, _ := render.ClaimOf(v)
		if err := r.recordOne(ctx, i, root, name, true); err != nil {
			return err
		}
	}
	return r.adopt(ctx, target, i)
}

// migrates reports whether a migration that brings the instance's guest to this launcher exists on the server.
func (r *Reconciler) migrates(ctx context.Context, target *corev1.Pod, i *kubevirt.VirtualMachineInstance) (bool, error) {
	var list kubevirt.VirtualMachineInstanceMigrationList
	if err := r.live.List(ctx, &list, client.InNamespace(i.Namespace)); err != nil {
		return false, fmt.Errorf("list migrations: %w", err)
	}
	id := launcherpod.Incoming(target)
	return id != "" && slices.ContainsFunc(list.Items, func(m kubevirt.VirtualMachineInstanceMigration) bool {
		return m.UID == id && m.Spec.VMIName == i.Name
	}), nil
}

func (r *Reconciler) recordOne(ctx context.Context, i *kubevirt.VirtualMachineInstance, root, name string, live bool) error {
	namespace := i.Namespace
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, namespace, name)
	if err != nil {
		return err
	}
	last, _, err := replacedclaim.Of(ctx, r.live, namespace, root)
	if err != nil || c == nil {
		return err
	}
	pv, err := cluster.VolumeOf(ctx, r.live, c)
	if err != nil || pv == nil {
		return err
	}
	old, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, namespace, root)
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
	if err := r.cluster.Change(ctx, pv, next); err != nil {
		return err
	}
	return r.markOld(ctx, old, record, pv.Name)
}

// markOld notes on the volume that a claim had when its data moved that the data is elsewhere. A claim that was made since has the data.
func (r *Reconciler) markOld(ctx context.Context, old *corev1.PersistentVolumeClaim, record replacedclaim.Record, by string) error {
	if old == nil || old.UID != record.Old {
		return nil
	}
	pv, err := cluster.VolumeOf(ctx, r.live, old)
	if err != nil || pv == nil || pv.Name == by || pv.Annotations[replacedclaim.By] == by {
		return err
	}
	return r.cluster.MarkAs(ctx, moveOwner, pv, cluster.Marks{Annotations: map[string]string{replacedclaim.By: by}})
}

// dropLeft deletes the claims that were made for a migration that failed. A claim whose volume has the data of a disk is never among
// them.
func (r *Reconciler) dropLeft(ctx context.Context, m *kubevirt.VirtualMachineInstanceMigration) error {
	var list corev1.PersistentVolumeClaimList
	if err := r.live.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingLabels{labelMigration: string(m.UID)}); err != nil {
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
		if err := r.cluster.Delete(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// recorded: the claim's volume has, or had, the data of another claim's disk.
func (r *Reconciler) recorded(ctx context.Context, c *corev1.PersistentVolumeClaim) (bool, error) {
	pv, err := cluster.VolumeOf(ctx, r.live, c)
	return pv != nil && pv.Annotations[replacedclaim.Annotation] != "", err
}

// unnamed returns the claims of a launcher's disks that do not have the volumes yet that the disks were sent to, each with what it waits
// for. The server is asked: what is said to have moved is read by others at once.
func (r *Reconciler) unnamed(ctx context.Context, target *corev1.Pod) ([]string, error) {
	var out []string
	moved := replacements(target)
	for _, v := range launcherpod.Machine(target).Spec.Volumes {
		name, _ := render.ClaimOf(v)
		if moved[v.Name] == "" {
			continue
		}
		current, err := replacedclaim.Current(ctx, r.live, target.Namespace, name)
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
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, namespace, name)
	if err != nil || c == nil || c.DeletionTimestamp == nil {
		return "", err
	}
	users, err := claimusers.Of(ctx, r.reader, c)
	if err != nil || len(users) == 0 {
		return "", err
	}
	return fmt.Sprintf(" has the data of before the move and goes when pod %s no longer uses it", users[0].Name), nil
}
