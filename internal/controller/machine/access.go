package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/end"
	"github.com/berth-vm/berth/internal/decide/access"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/render"
)

// Taking a disk and letting a launcher go must not cross: a record that is written for a launcher whose pod has just been
// let go would never be taken back. The pod is let go with its lock held, after its records are gone (releaseDisks);
// a record is written with the lock held, after the server has said that the pod is still kept.

// locks are shared by the pods whose UIDs hash to the same one.
type locks struct {
	seed maphash.Seed
	all  [64]sync.Mutex
}

func newLocks() *locks { return &locks{seed: maphash.MakeSeed()} }

func (l *locks) of(pod types.UID) *sync.Mutex {
	return &l.all[maphash.String(l.seed, string(pod))%uint64(len(l.all))]
}

// holderLabel is on a record for each of its holders, so that the server can be asked for the records of one.
func holderLabel(pod types.UID) string { return "holder.berth.dev/" + string(pod) }

// mode is how a machine wants the disk of a volume.
func mode(v kubevirt.Volume, drive kubevirt.Disk) accessv1.Mode {
	_, readOnly := render.ClaimOf(v)
	switch {
	case v.Copied() != nil || v.Reads(): // what it writes goes to its own copy, or it writes nothing
		return accessv1.ReadShared
	case v.AccessMode != "":
		return accessv1.Mode(v.AccessMode)
	case readOnly || drive.ReadsOnly():
		return accessv1.ReadShared
	case drive.Shareable != nil && *drive.Shareable:
		return accessv1.WriteShared
	}
	return accessv1.WriteExclusive
}

// identify finds which disk is behind a bound claim. A claim whose volume is not known yet is not ready: nothing can be said
// of who else has it.
func (r *Reconciler) identify(ctx context.Context, d *disk) error {
	if d.is != machine.Ready {
		return nil
	}
	pv, err := r.volumeOf(ctx, d.claim)
	if err != nil {
		return err
	}
	if pv != nil {
		d.pv, d.id = pv, identity.Volume(pv)
		return nil
	}
	d.is, d.why = machine.Filling, fmt.Sprintf("the volume of its disk %s is not bound to the claim yet", d.name)
	return nil
}

// volumeOf returns the volume that a claim is bound to; nil if it is not.
func (r *Reconciler) volumeOf(ctx context.Context, c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if c == nil || c.Status.Phase != corev1.ClaimBound {
		return nil, nil
	}
	return cluster.VolumeOf(ctx, r.reader, c)
}

// observeAccess finds out whether the launcher may have a disk. Before there is a launcher it has no UID, and so no record.
func (r *Reconciler) observeAccess(ctx context.Context, s *run, d *disk, others []disk) error {
	if d.is != machine.Ready {
		return nil
	}
	for _, o := range others {
		if o.is == machine.Ready && o.id == d.id && !access.Compatible(o.mode, d.mode) {
			d.access, d.why = machine.Taken, fmt.Sprintf("volumes %s and %s are the same disk, which cannot be %s and %s at once; "+
				"take one of them out of the machine", o.name, d.name, o.mode, d.mode)
			return nil
		}
	}
	record, err := cluster.Get[accessv1.DiskAccess](ctx, r.reader, "", d.id.Name())
	if err != nil {
		return err
	}
	d.holds = s.launcher != nil && record != nil && slices.ContainsFunc(record.Spec.Holders, func(h accessv1.Holder) bool { return h.PodUID == s.launcher.UID })
	if s.gaveBack(d) {
		d.access = machine.Have // all it needs
		return nil
	}
	if record == nil {
		return nil
	}
	for _, h := range record.Spec.Holders {
		switch {
		case s.launcher != nil && h.PodUID == s.launcher.UID:
			d.access = machine.Have
		case d.holds && h.UID == s.instance.UID: // the guest moves from one of them to the other
		case !access.Compatible(h.Mode, d.mode):
			d.access = machine.Taken
			d.why, err = r.takenBy(ctx, s, d, h)
			return err
		}
	}
	return nil
}

// place is what the disk is in, for a person.
func (d *disk) place() string {
	if d.claim == nil {
		return d.id.String()
	}
	return "PersistentVolumeClaim " + d.claim.Name
}

// takenBy says who has a disk. What is in another namespace is not this one's to know.
func (r *Reconciler) takenBy(ctx context.Context, s *run, d *disk, h accessv1.Holder) (string, error) {
	whose := fmt.Sprintf("disk %s (%s) is wanted %s", d.name, d.place(), d.mode)
	if h.Namespace != s.instance.Namespace {
		return fmt.Sprintf("%s, and a machine of another namespace has it %s", whose, h.Mode), nil
	}
	who := "machine " + h.Machine
	if h.Machine == s.instance.Name && h.UID != s.instance.UID {
		who = "an earlier run of this machine"
	}
	text := fmt.Sprintf("%s, and %s has it %s in pod %s on node %s", whose, who, h.Mode, h.Pod, h.Node)
	pod, err := cluster.Get[corev1.Pod](ctx, r.reader, h.Namespace, h.Pod)
	if pod != nil && pod.UID == h.PodUID && isMover(pod) {
		return fmt.Sprintf("%s, and it is being copied to another node since somebody moves machine %s; it can be had after that, or after: virtctl migrate-cancel %s",
			whose, h.Machine, h.Machine), nil
	}
	if err == nil && (pod == nil || pod.UID != h.PodUID) {
		text += "; that pod was removed before the node had said that it has ended, so it may still run: " +
			"the disk is free when the node has been restarted or taken out of the cluster, or when an administrator who knows better deletes DiskAccess " +
			d.id.Name()
	}
	return text, err
}

// access is what counts of all disks the machine is started with.
func (s *run) access() machine.Access {
	have, taken := 0, 0
	for _, d := range s.disks {
		switch d.access {
		case machine.Have:
			have++
		case machine.Taken, machine.Partly:
			taken++
		case machine.Free:
		}
	}
	switch {
	case taken > 0 && have > 0:
		return machine.Partly
	case taken > 0:
		return machine.Taken
	case have == len(s.disks):
		return machine.Have
	}
	return machine.Free
}

// take enters the launcher among the holders of disks. It asks the server, not the cache; whoever comes first has the disk, and
// for the other this fails as a write on an old version does.
func (r *Reconciler) take(ctx context.Context, s *run, disks []disk) error {
	lock := r.locks.of(s.launcher.UID)
	lock.Lock()
	defer lock.Unlock()
	if err := r.stillKept(ctx, s.launcher); err != nil {
		return err
	}
	node, err := cluster.Get[corev1.Node](ctx, r.reader, "", s.launcher.Spec.NodeName)
	if err != nil {
		return err
	}
	me := accessv1.Holder{Namespace: s.instance.Namespace, Machine: s.instance.Name, UID: s.instance.UID,
		Pod: s.launcher.Name, PodUID: s.launcher.UID, Node: s.launcher.Spec.NodeName}
	if node != nil {
		me.BootID = node.Status.NodeInfo.BootID
	}
	disks = slices.Clone(disks) // in one order for everybody, so that nobody waits for each other
	slices.SortFunc(disks, func(a, b disk) int { return cmp.Compare(a.id.Name(), b.id.Name()) })
	for _, d := range disks {
		if err := r.current(ctx, d); err != nil {
			return err
		}
		me.Mode = d.mode
		if err := r.enter(ctx, d.id, me, s.beside); err != nil {
			return err
		}
	}
	return nil
}

var errNotKept = errors.New("the launcher is not kept until its end")

// stillKept: the pod cannot go before its end is certain, and has not ended.
func (r *Reconciler) stillKept(ctx context.Context, launcher *corev1.Pod) error {
	p, err := cluster.Get[corev1.Pod](ctx, r.live, launcher.Namespace, launcher.Name)
	if err != nil {
		return err
	}
	if p == nil || p.UID != launcher.UID || p.DeletionTimestamp != nil || end.Over(p) || !slices.Contains(p.Finalizers, render.LauncherEnd) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, launcher.Name, errNotKept)
	}
	return nil
}

var errTaken = errors.New("somebody else has the disk")

// enter adds one holder to the record of one disk. The one that its guest comes from is not in its way: of the two, one runs it.
func (r *Reconciler) enter(ctx context.Context, id identity.Disk, me accessv1.Holder, beside types.UID) error {
	record, err := cluster.Get[accessv1.DiskAccess](ctx, r.live, "", id.Name())
	if err != nil {
		return err
	}
	if record == nil {
		record = &accessv1.DiskAccess{Spec: accessv1.DiskAccessSpec{Disk: id.String(), Holders: []accessv1.Holder{me}}}
		record.Name, record.Labels = id.Name(), map[string]string{holderLabel(me.PodUID): ""}
		return r.cluster.CreateNew(ctx, record)
	}
	for _, h := range record.Spec.Holders {
		switch {
		case h.PodUID == me.PodUID && h.Mode == me.Mode:
			return nil
		case h.PodUID != me.PodUID && (beside == "" || h.PodUID != beside) && !access.Compatible(h.Mode, me.Mode):
			return apierrors.NewConflict(schema.GroupResource{Group: accessv1.GroupVersion.Group, Resource: "diskaccesses"}, record.Name, errTaken)
		}
	}
	next := without(record, me.PodUID)
	next.Spec.Holders = append(next.Spec.Holders, me)
	next.Labels = with(next.Labels, holderLabel(me.PodUID), "")
	return r.cluster.Update(ctx, next)
}

// without is the record without one holder.
func without(record *accessv1.DiskAccess, pod types.UID) *accessv1.DiskAccess {
	next := record.DeepCopy()
	next.Spec.Holders = slices.DeleteFunc(next.Spec.Holders, func(h accessv1.Holder) bool { return h.PodUID == pod })
	delete(next.Labels, holderLabel(pod))
	return next
}

// leave takes a launcher out of the records that it is in, but for those of the disks to keep.
func (r *Reconciler) leave(ctx context.Context, pod types.UID, keep map[string]bool) error {
	var records accessv1.DiskAccessList
	if err := r.live.List(ctx, &records, client.HasLabels{holderLabel(pod)}); err != nil {
		return fmt.Errorf("list the disks of a launcher: %w", err)
	}
	for i := range records.Items {
		if record := &records.Items[i]; !keep[record.Name] {
			if err := r.strike(ctx, record, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// strike removes one holder from a record, and the record with its last.
func (r *Reconciler) strike(ctx context.Context, record *accessv1.DiskAccess, pod types.UID) error {
	next := without(record, pod)
	if len(next.Spec.Holders) == 0 {
		return r.cluster.DeleteUnchanged(ctx, record)
	}
	return r.cluster.Update(ctx, next)
}

// releaseDisks frees the disks of a pod whose end is certain, and lets it go.
func (r *Reconciler) releaseDisks(ctx context.Context, p *corev1.Pod, letGo func() error) error {
	lock := r.locks.of(p.UID)
	lock.Lock()
	defer lock.Unlock()
	if err := r.inWriting(ctx, p); err != nil {
		return err
	}
	if err := r.leave(ctx, p.UID, nil); err != nil {
		return err
	}
	return letGo()
}

// giveBack is leave for a launcher that lives.
func (r *Reconciler) giveBack(ctx context.Context, s *run, keep map[string]bool) error {
	lock := r.locks.of(s.launcher.UID)
	lock.Lock()
	defer lock.Unlock()
	return r.leave(ctx, s.launcher.UID, keep)
}
