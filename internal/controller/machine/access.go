package machine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/decide/access"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/render"
)

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
		d.pv, d.id, d.servers = pv, identity.Volume(pv), netdisk.Servers(pv)
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
func (r *Reconciler) observeAccess(ctx context.Context, s *base, d *disk, others []disk) error {
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
	holders, err := r.records.Holders(ctx, d.id)
	if err != nil {
		return err
	}
	d.holds = s.launcher != nil && slices.ContainsFunc(holders, func(h accessv1.Holder) bool { return h.PodUID == s.launcher.UID })
	if s.gaveBack(d) {
		d.access = machine.Have // all it needs
		return nil
	}
	mine := accessv1.Holder{Namespace: s.instance.Namespace, Mode: d.mode, ClaimUID: d.claimUID(), Early: d.early, Servers: d.servers}
	if at := slices.IndexFunc(holders, func(h accessv1.Holder) bool { return s.launcher != nil && h.PodUID == s.launcher.UID }); at >= 0 {
		mine = holders[at]
	}
	for _, h := range holders {
		switch {
		case s.launcher != nil && h.PodUID == s.launcher.UID:
			entered, err := r.records.Entered(ctx, d.id, h.PodUID)
			if err != nil {
				return err
			}
			if entered {
				d.access = machine.Have // otherwise its record has the name that an earlier version gave it, and it gets another
			}
			continue
		case d.holds && h.UID == s.instance.UID: // the guest moves from one of them to the other
			continue
		case d.logsIn && h.Namespace != s.instance.Namespace: // whether it is the same disk is known when it has logged in
			continue
		}
		out, err := r.records.KeepsOut(ctx, h, mine)
		if err != nil {
			return err
		}
		if out {
			d.access = machine.Taken
			d.why, err = r.takenBy(ctx, s, d, h)
			return err
		}
	}
	if !d.logsIn {
		return r.observeOwned(ctx, s, d)
	}
	if d.access == machine.Free {
		s.observeLogin(d)
	}
	return nil
}

// observeLogin finds out whether the launcher has logged in at the server of a disk that nobody else has.
func (s *base) observeLogin(d *disk) {
	if s.launcher == nil {
		return
	}
	d.access, d.why = machine.LogsIn, fmt.Sprintf("the launcher logs in at the server of disk %s (%s)", d.name, d.place())
	if s.logins[d.name] != nil {
		d.access = machine.LoggedIn
	}
}

// observeOwned: a disk that a claim of another namespace is bound to is that namespace's. A machine that has written its address may read it,
// if the server lets it in, but is no second writer.
func (r *Reconciler) observeOwned(ctx context.Context, s *base, d *disk) error {
	if d.claim != nil || d.mode == accessv1.ReadShared || d.access == machine.Have {
		return nil
	}
	var volumes corev1.PersistentVolumeList
	if err := r.reader.List(ctx, &volumes, client.MatchingFields{cacheindex.VolumeDisk: d.id.Name()}); err != nil {
		return fmt.Errorf("list the volumes of a disk: %w", err)
	}
	for i := range volumes.Items {
		ref := volumes.Items[i].Spec.ClaimRef
		if ref == nil || ref.UID == "" || ref.Namespace == s.instance.Namespace || diskaccess.Apart(netdisk.Servers(&volumes.Items[i]), d.servers) {
			continue
		}
		d.access = machine.Taken
		d.why = fmt.Sprintf("disk %s (%s) is wanted %s, and a PersistentVolumeClaim of another namespace is bound to it: by its address it can only be had read-shared",
			d.name, d.place(), d.mode)
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
func (r *Reconciler) takenBy(ctx context.Context, s *base, d *disk, h accessv1.Holder) (string, error) {
	whose := fmt.Sprintf("disk %s (%s) is wanted %s", d.name, d.place(), d.mode)
	if h.Namespace != s.instance.Namespace {
		if h.Use != "" {
			return fmt.Sprintf("%s, and a pod of another namespace %s", whose, diskaccess.UsedFor(h.Use)), nil
		}
		return fmt.Sprintf("%s, and a machine of another namespace has it %s", whose, h.Mode), nil
	}
	if h.Use != "" {
		return fmt.Sprintf("%s, and pod %s %s; it can be had when that has ended", whose, h.Pod, diskaccess.UsedFor(h.Use)), nil
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
	have, taken, login := 0, 0, machine.Free
	for _, d := range s.disks {
		switch d.access {
		case machine.Have:
			have++
		case machine.Taken, machine.Partly:
			taken++
		case machine.LogsIn:
			login = machine.LogsIn
		case machine.LoggedIn:
			if login == machine.Free {
				login = machine.LoggedIn
			}
		case machine.Free:
		}
	}
	switch {
	case taken > 0 && have > 0:
		return machine.Partly
	case taken > 0:
		return machine.Taken
	case login != machine.Free:
		return login
	case have == len(s.disks):
		return machine.Have
	}
	return machine.Free
}

// taker is a pod of a machine that is to have disks.
type taker struct {
	pod      *corev1.Pod
	instance *kubevirt.VirtualMachineInstance
	beside   types.UID // the pod that has the disks as well, while the guest moves from it; empty: none has
}

// take enters a pod among the holders of disks.
func (r *Reconciler) take(ctx context.Context, t taker, disks []disk) error {
	wanted := make([]diskaccess.Disk, 0, len(disks))
	for _, d := range disks {
		wanted = append(wanted, diskaccess.Disk{ID: d.id, Mode: d.mode, Claim: d.claimUID(), Early: d.early, Servers: d.servers})
	}
	by := diskaccess.Taker{Pod: t.pod, Finalizer: render.LauncherEnd, Machine: t.instance.Name, UID: t.instance.UID, Beside: t.beside,
		Current: func(ctx context.Context, wanted diskaccess.Disk) error {
			for _, d := range disks {
				if d.id == wanted.ID {
					if err := r.current(ctx, d); err != nil {
						return err
					}
				}
			}
			return nil
		}}
	return r.records.Take(ctx, by, wanted)
}

func (d *disk) claimUID() types.UID {
	if d.claim == nil {
		return ""
	}
	return d.claim.UID
}

// releaseDisks frees the disks of a pod whose end is certain, and lets it go.
func (r *Reconciler) releaseDisks(ctx context.Context, p *corev1.Pod, letGo func() error) error {
	return r.records.Release(ctx, p.UID, func() error {
		if err := r.inWriting(ctx, p); err != nil {
			return err
		}
		return r.recordEnd(ctx, p)
	}, letGo)
}
