package diskstate

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

// Mode returns the access mode in which a machine needs the disk of a volume.
func Mode(v kubevirt.Volume, drive kubevirt.Disk) accessv1.Mode {
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

// Identify finds which disk is behind a bound claim. A claim whose volume is not known yet is not ready, because its other holders
// cannot be found.
func (r *Reader) Identify(ctx context.Context, d *Disk) error {
	if d.State != machine.Ready {
		return nil
	}
	pv, err := r.VolumeOf(ctx, d.Claim)
	if err != nil {
		return err
	}
	if pv != nil {
		d.PV, d.ID, d.Servers = pv, identity.Volume(pv), netdisk.Servers(pv)
		return nil
	}
	d.State, d.Why = machine.Filling, fmt.Sprintf("the volume of its disk %s is not bound to the claim yet", d.Name)
	return nil
}

// VolumeOf returns the volume that a claim is bound to; nil if it is not.
func (r *Reader) VolumeOf(ctx context.Context, c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if c == nil || c.Status.Phase != corev1.ClaimBound {
		return nil, nil
	}
	return cluster.VolumeOf(ctx, r.Cached, c)
}

// Access finds out whether the launcher may have a disk. Before there is a launcher it has no UID, and so no record.
func (r *Reader) Access(ctx context.Context, s *Run, d *Disk, others []Disk) error {
	if d.State != machine.Ready {
		return nil
	}
	for _, o := range others {
		if o.State == machine.Ready && o.ID == d.ID && !access.Compatible(o.Mode, d.Mode) {
			d.Access, d.Why = machine.Taken, fmt.Sprintf("volumes %s and %s are the same disk, which cannot be %s and %s at once; "+
				"take one of them out of the machine", o.Name, d.Name, o.Mode, d.Mode)
			return nil
		}
	}
	holders, err := r.Records.Holders(ctx, d.ID)
	if err != nil {
		return err
	}
	d.Holds = s.Launcher != nil && slices.ContainsFunc(holders, func(h accessv1.Holder) bool { return h.PodUID == s.Launcher.UID })
	if s.gaveBack(d) {
		d.Access = machine.Have // all it needs
		return nil
	}
	mine := accessv1.Holder{Namespace: s.Object.Namespace, Mode: d.Mode, ClaimUID: d.ClaimUID(), Early: d.Early, Servers: d.Servers}
	if at := slices.IndexFunc(holders, func(h accessv1.Holder) bool { return s.Launcher != nil && h.PodUID == s.Launcher.UID }); at >= 0 {
		mine = holders[at]
	}
	for _, h := range holders {
		switch {
		case s.Launcher != nil && h.PodUID == s.Launcher.UID:
			entered, err := r.Records.Entered(ctx, d.ID, h.PodUID)
			if err != nil {
				return err
			}
			if entered {
				d.Access = machine.Have // otherwise its record has the name that an earlier version gave it, and it gets another
			}
			continue
		case d.Holds && h.UID == s.Object.UID: // the guest moves from one of them to the other
			continue
		case d.logsIn && h.Namespace != s.Object.Namespace: // whether it is the same disk is known when it has logged in
			continue
		}
		out, err := r.Records.KeepsOut(ctx, h, mine)
		if err != nil {
			return err
		}
		if out {
			d.Access = machine.Taken
			d.Why, err = r.TakenBy(ctx, s, d, h)
			return err
		}
	}
	if !d.logsIn {
		return r.observeOwned(ctx, s, d)
	}
	if d.Access == machine.Free {
		s.observeLogin(d)
	}
	return nil
}

// observeLogin finds out whether the launcher has logged in at the server of a disk that no other holder has.
func (s *Run) observeLogin(d *Disk) {
	if s.Launcher == nil {
		return
	}
	d.Access, d.Why = machine.LogsIn, fmt.Sprintf("the launcher logs in at the server of disk %s (%s)", d.Name, d.Place())
	if s.Logins[d.Name] != nil {
		d.Access = machine.LoggedIn
	}
}

// observeOwned: a disk that a claim of another namespace is bound to is that namespace's. A machine that has written its address may read it,
// if the server lets it in, but is no second writer.
func (r *Reader) observeOwned(ctx context.Context, s *Run, d *Disk) error {
	if d.Claim != nil || d.Mode == accessv1.ReadShared || d.Access == machine.Have {
		return nil
	}
	var volumes corev1.PersistentVolumeList
	if err := r.Cached.List(ctx, &volumes, client.MatchingFields{cacheindex.VolumeDisk: d.ID.Name()}); err != nil {
		return fmt.Errorf("list the volumes of a disk: %w", err)
	}
	for i := range volumes.Items {
		ref := volumes.Items[i].Spec.ClaimRef
		if ref == nil || ref.UID == "" || ref.Namespace == s.Object.Namespace || diskaccess.Apart(netdisk.Servers(&volumes.Items[i]), d.Servers) {
			continue
		}
		d.Access = machine.Taken
		d.Why = fmt.Sprintf("disk %s (%s) is wanted %s, and a PersistentVolumeClaim of another namespace is bound to it: by its address it can only be had read-shared",
			d.Name, d.Place(), d.Mode)
	}
	return nil
}

// Place names the place of the disk, for messages.
func (d *Disk) Place() string {
	if d.Claim == nil {
		return d.ID.String()
	}
	return "PersistentVolumeClaim " + d.Claim.Name
}

// TakenBy says who has a disk. What is in another namespace is not this one's to know.
func (r *Reader) TakenBy(ctx context.Context, s *Run, d *Disk, h accessv1.Holder) (string, error) {
	whose := fmt.Sprintf("disk %s (%s) is wanted %s", d.Name, d.Place(), d.Mode)
	if h.Namespace != s.Object.Namespace {
		if h.Use != "" {
			return fmt.Sprintf("%s, and a pod of another namespace %s", whose, diskaccess.UsedFor(h.Use)), nil
		}
		return fmt.Sprintf("%s, and a machine of another namespace has it %s", whose, h.Mode), nil
	}
	if h.Use != "" {
		return fmt.Sprintf("%s, and pod %s %s; it can be had when that has ended", whose, h.Pod, diskaccess.UsedFor(h.Use)), nil
	}
	who := "machine " + h.Machine
	if h.Machine == s.Object.Name && h.UID != s.Object.UID {
		who = "an earlier run of this machine"
	}
	text := fmt.Sprintf("%s, and %s has it %s in pod %s on node %s", whose, who, h.Mode, h.Pod, h.Node)
	pod, err := cluster.Get[corev1.Pod](ctx, r.Cached, h.Namespace, h.Pod)
	if pod != nil && pod.UID == h.PodUID && isMover(pod) {
		return fmt.Sprintf("%s, and it is being copied to another node since somebody moves machine %s; it can be had after that, or after: virtctl migrate-cancel %s",
			whose, h.Machine, h.Machine), nil
	}
	if err == nil && (pod == nil || pod.UID != h.PodUID) {
		text += "; that pod was removed before the node had said that it has ended, so it may still run: " +
			"the disk is free when the node has been restarted or taken out of the cluster, or when an administrator who knows better deletes DiskAccess " +
			d.ID.Name()
	}
	return text, err
}

// ClaimUID returns the UID of the claim; empty if there is none.
func (d *Disk) ClaimUID() types.UID {
	if d.Claim == nil {
		return ""
	}
	return d.Claim.UID
}
