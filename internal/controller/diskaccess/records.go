// Package diskaccess keeps the records of who has a disk: one DiskAccess for each disk, with the pods of Berth that have it.
// Launchers of machines and workers that fill, clone or export a disk enter it before they start, and are taken out when they
// have certainly ended. internal/decide/access says which pods may have a disk at the same time, internal/identity which disk a
// name stands for.
//
// It does not know of pods of users: internal/controller/claimusers finds those.
package diskaccess

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/decide/access"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/pods"
)

// Records reads and writes the records. Taking a disk and releasing a pod must not overlap: a record that is written for a pod
// that has just been released would never be deleted. So the finalizer of a pod is removed with the pod's lock held, after its
// records are deleted (Release); a record is written with the lock held, after the API server has confirmed that the pod still has
// the finalizer (Take).
type Records struct {
	reader  client.Reader // cached
	live    client.Reader // the API server itself
	cluster *cluster.Writer

	seed  maphash.Seed
	locks [64]sync.Mutex // shared by the pods whose UIDs hash to the same one
}

// New returns the records of a cluster. All that take or release disks of the same pods in one process must share it.
func New(reader, live client.Reader, writer *cluster.Writer) *Records {
	return &Records{reader: reader, live: live, cluster: writer, seed: maphash.MakeSeed()}
}

func (r *Records) lock(pod types.UID) *sync.Mutex {
	return &r.locks[maphash.String(r.seed, string(pod))%uint64(len(r.locks))]
}

// HolderLabel is on a record for each of its holders, so that the server can be asked for the records of one pod.
func HolderLabel(pod types.UID) string { return "holder.berth.dev/" + string(pod) }

// Disk is a disk that a pod is to have.
type Disk struct {
	ID    identity.Disk
	Mode  accessv1.Mode
	Claim types.UID // of the claim that it has the disk through; empty: by its address
	// Servers are the addresses of its servers, see accessv1.Holder.
	Servers []string
	Use     accessv1.Use
	Early   bool // see accessv1.Holder
}

// Compatible reports whether two pods may have one disk at the same time. A worker that serves a disk while it fills it expects
// the launcher that has the disk through the same claim.
func Compatible(a, b accessv1.Holder) bool {
	early := a.Early && b.Early && a.ClaimUID == b.ClaimUID && a.ClaimUID != ""
	return early || access.Compatible(a.Mode, b.Mode)
}

// Holders returns the holders of a disk, as the cache knows them.
func (r *Records) Holders(ctx context.Context, id identity.Disk) ([]accessv1.Holder, error) {
	return r.holders(ctx, r.reader, id)
}

// HoldersNow returns the holders of a disk, as the API server knows them.
func (r *Records) HoldersNow(ctx context.Context, id identity.Disk) ([]accessv1.Holder, error) {
	return r.holders(ctx, r.live, id)
}

func (r *Records) holders(ctx context.Context, from client.Reader, id identity.Disk) ([]accessv1.Holder, error) {
	var out []accessv1.Holder
	record, err := cluster.Get[accessv1.DiskAccess](ctx, from, "", id.Name())
	if err != nil {
		return nil, err
	}
	if record != nil {
		out = record.Spec.Holders
	}
	former, err := r.former(ctx, from, id)
	if err != nil {
		return nil, err
	}
	for _, h := range former {
		if !holds(out, h.PodUID) {
			out = append(slices.Clip(out), h)
		}
	}
	return out, nil
}

// former returns the holders in records that an earlier version named otherwise: by the PersistentVolume and not by the disk.
func (r *Records) former(ctx context.Context, from client.Reader, id identity.Disk) ([]accessv1.Holder, error) {
	if !identity.HasFormer(id) {
		return nil, nil
	}
	var volumes corev1.PersistentVolumeList
	if err := r.reader.List(ctx, &volumes, client.MatchingFields{cacheindex.VolumeDisk: id.Name()}); err != nil {
		return nil, fmt.Errorf("list the volumes of a disk: %w", err)
	}
	var out []accessv1.Holder
	for i := range volumes.Items {
		was, is := identity.Former(&volumes.Items[i])
		if !is {
			continue
		}
		record, err := cluster.Get[accessv1.DiskAccess](ctx, from, "", was.Name())
		if err != nil {
			return nil, err
		}
		if record != nil {
			out = append(out, record.Spec.Holders...)
		}
	}
	return out, nil
}

// Holds reports whether the pod is among the holders of a disk, as the cache knows them.
func (r *Records) Holds(ctx context.Context, id identity.Disk, pod types.UID) (bool, error) {
	holders, err := r.Holders(ctx, id)
	return holds(holders, pod), err
}

// Entered reports whether the pod is in the record that has the name of the disk's identity, as the cache knows it: not in one
// that an earlier version named otherwise.
func (r *Records) Entered(ctx context.Context, id identity.Disk, pod types.UID) (bool, error) {
	record, err := cluster.Get[accessv1.DiskAccess](ctx, r.reader, "", id.Name())
	return record != nil && holds(record.Spec.Holders, pod), err
}

func holds(holders []accessv1.Holder, pod types.UID) bool {
	return slices.ContainsFunc(holders, func(h accessv1.Holder) bool { return h.PodUID == pod })
}

// Taker is a pod that takes disks.
type Taker struct {
	Pod       *corev1.Pod
	Finalizer string    // that keeps it until its end is certain
	Machine   string    // see accessv1.Holder
	UID       types.UID // see accessv1.Holder
	Beside    types.UID // a pod that may have the disks as well, whatever its mode: the guest moves from it
	// Current is called for each disk before it is taken; nil: no check.
	Current func(ctx context.Context, d Disk) error
}

// Take enters a pod among the holders of disks. It asks the server, not the cache; the pod that comes first has the disk, and for the
// other this fails with a conflict, as a write on an old version does. It may be repeated.
func (r *Records) Take(ctx context.Context, by Taker, disks []Disk) error {
	lock := r.lock(by.Pod.UID)
	lock.Lock()
	defer lock.Unlock()
	if err := r.stillKept(ctx, by); err != nil {
		return err
	}
	me := accessv1.Holder{Namespace: by.Pod.Namespace, Machine: by.Machine, UID: by.UID,
		Pod: by.Pod.Name, PodUID: by.Pod.UID, Node: by.Pod.Spec.NodeName}
	if me.Node != "" {
		node, err := cluster.Get[corev1.Node](ctx, r.reader, "", me.Node)
		if err != nil {
			return err
		}
		if node != nil {
			me.BootID = node.Status.NodeInfo.BootID
		}
	}
	disks = slices.Clone(disks) // in one order for everybody, so that no two wait for each other
	slices.SortFunc(disks, func(a, b Disk) int { return cmp.Compare(a.ID.Name(), b.ID.Name()) })
	for _, d := range disks {
		if by.Current != nil {
			if err := by.Current(ctx, d); err != nil {
				return err
			}
		}
		me.Mode, me.ClaimUID, me.Use, me.Early, me.Servers = d.Mode, d.Claim, d.Use, d.Early, d.Servers
		if err := r.enter(ctx, d.ID, me, by.Beside); err != nil {
			return err
		}
	}
	return nil
}

var errNotKept = errors.New("the pod is not kept until its end")

// stillKept returns a conflict unless the pod is there, has not ended, and cannot go before its end is certain.
func (r *Records) stillKept(ctx context.Context, by Taker) error {
	p, err := cluster.Get[corev1.Pod](ctx, r.live, by.Pod.Namespace, by.Pod.Name)
	if err != nil {
		return err
	}
	if p == nil || p.UID != by.Pod.UID || p.DeletionTimestamp != nil || podend.Over(p) || !slices.Contains(p.Finalizers, by.Finalizer) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, by.Pod.Name, errNotKept)
	}
	return nil
}

var errTaken = errors.New("somebody else has the disk")

// enter adds one holder to the record of one disk. During a migration source and target may both hold the disk: only one of them runs
// the guest.
func (r *Records) enter(ctx context.Context, id identity.Disk, me accessv1.Holder, beside types.UID) error {
	record, err := cluster.Get[accessv1.DiskAccess](ctx, r.live, "", id.Name())
	if err != nil {
		return err
	}
	former, err := r.former(ctx, r.live, id)
	if err != nil {
		return err
	}
	for _, h := range former {
		if in, err := r.inTheWay(ctx, r.live, h, me, beside); err != nil {
			return err
		} else if in {
			return taken(id)
		}
	}
	if record == nil {
		record = &accessv1.DiskAccess{Spec: accessv1.DiskAccessSpec{Disk: id.String(), Holders: []accessv1.Holder{me}}}
		record.Name, record.Labels = id.Name(), map[string]string{HolderLabel(me.PodUID): ""}
		return r.cluster.CreateNew(ctx, record)
	}
	for _, h := range record.Spec.Holders {
		if equality.Semantic.DeepEqual(h, me) {
			return nil
		}
		if in, err := r.inTheWay(ctx, r.live, h, me, beside); err != nil {
			return err
		} else if in {
			return taken(id)
		}
	}
	next := without(record, me.PodUID)
	next.Spec.Holders = append(next.Spec.Holders, me)
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	next.Labels[HolderLabel(me.PodUID)] = ""
	return r.cluster.Update(ctx, next)
}

// inTheWay reports whether h keeps me from having the disk.
func (r *Records) inTheWay(ctx context.Context, from client.Reader, h, me accessv1.Holder, beside types.UID) (bool, error) {
	if h.PodUID == me.PodUID || beside != "" && h.PodUID == beside {
		return false, nil
	}
	return r.keepsOut(ctx, from, h, me)
}

// KeepsOut reports whether h keeps me from having a disk that both name, as the cache knows it.
func (r *Records) KeepsOut(ctx context.Context, h, me accessv1.Holder) (bool, error) {
	return r.keepsOut(ctx, r.reader, h, me)
}

// keepsOut reports whether the two cannot have the disk together. If they are in different namespaces and one of them has the disk
// by its address, the server counts: any user can run a server that claims to have a disk of some name, so at different servers
// they have different disks. PersistentVolumes are written by administrators, and two of one disk may list different portals:
// between claims the server does not count. A claim does not wait for a reader of another namespace that has the disk by its
// address, unless both are at the same server. A machine that wants to write by an address is refused before if a claim of another
// namespace leads there (internal/controller/diskstate).
func (r *Records) keepsOut(ctx context.Context, from client.Reader, h, me accessv1.Holder) (bool, error) {
	if Compatible(h, me) {
		return false, nil
	}
	if h.Namespace == me.Namespace || h.ClaimUID != "" && me.ClaimUID != "" {
		return true, nil
	}
	known := len(h.Servers) > 0 && len(me.Servers) > 0
	byAddress := h.ClaimUID == "" && h.Use == "" && h.Mode == accessv1.ReadShared
	switch {
	case known:
		return !Apart(h.Servers, me.Servers), nil
	case me.ClaimUID == "" || !byAddress:
		return true, nil
	case len(h.Servers) > 0:
		return false, nil
	}
	// A launcher of an earlier version, or one that was given the disk while it ran, has not said where it is logged in.
	p, err := cluster.Get[corev1.Pod](ctx, from, h.Namespace, h.Pod)
	if err != nil {
		return true, err
	}
	waits := p != nil && p.UID == h.PodUID && !pods.Ready(p)
	return !waits, nil
}

// Apart reports whether two lists of servers are known and have no server in common.
func Apart(a, b []string) bool {
	return len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

func taken(id identity.Disk) error {
	return apierrors.NewConflict(schema.GroupResource{Group: accessv1.GroupVersion.Group, Resource: "diskaccesses"}, id.Name(), errTaken)
}

// without returns the record without one holder.
func without(record *accessv1.DiskAccess, pod types.UID) *accessv1.DiskAccess {
	next := record.DeepCopy()
	next.Spec.Holders = slices.DeleteFunc(next.Spec.Holders, func(h accessv1.Holder) bool { return h.PodUID == pod })
	next.Labels = maps.Clone(next.Labels)
	delete(next.Labels, HolderLabel(pod))
	return next
}

// GiveBack takes a pod that lives out of the records that it is in, but for those of the disks to keep, by their names.
func (r *Records) GiveBack(ctx context.Context, pod types.UID, keep map[string]bool) error {
	lock := r.lock(pod)
	lock.Lock()
	defer lock.Unlock()
	return r.leave(ctx, pod, keep)
}

// GiveBackOne takes a pod that lives out of the record of one disk.
func (r *Records) GiveBackOne(ctx context.Context, pod types.UID, id identity.Disk) error {
	lock := r.lock(pod)
	lock.Lock()
	defer lock.Unlock()
	record, err := cluster.Get[accessv1.DiskAccess](ctx, r.live, "", id.Name())
	if err != nil || record == nil || !holds(record.Spec.Holders, pod) {
		return err
	}
	return r.strike(ctx, record, pod)
}

// Release frees the disks of a pod whose end is certain, and lets it go. before, if there is one, is done first. It may be repeated.
func (r *Records) Release(ctx context.Context, pod types.UID, before, letGo func() error) error {
	lock := r.lock(pod)
	lock.Lock()
	defer lock.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	if err := r.leave(ctx, pod, nil); err != nil {
		return err
	}
	return letGo()
}

func (r *Records) leave(ctx context.Context, pod types.UID, keep map[string]bool) error {
	var records accessv1.DiskAccessList
	if err := r.live.List(ctx, &records, client.HasLabels{HolderLabel(pod)}); err != nil {
		return fmt.Errorf("list the disks of a pod: %w", err)
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
func (r *Records) strike(ctx context.Context, record *accessv1.DiskAccess, pod types.UID) error {
	next := without(record, pod)
	if len(next.Spec.Holders) == 0 {
		return r.cluster.DeleteUnchanged(ctx, record)
	}
	return r.cluster.Update(ctx, next)
}
