package observed

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/claimusers"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// Changed is a volume that is to be in another claim than its disk.
type Changed struct {
	Volume string
	From   diskstate.Disk
	To     kubevirt.Volume               // as the machine has it now
	Claim  *corev1.PersistentVolumeClaim // nil: it is not there
	Cause  state.UpdateCause             // why it cannot be sent; empty: it can
	Detail string
}

// Updates are the changed volumes of a running machine, and what is done about them.
type Updates struct {
	Compared bool // there is a guest, and a machine to compare it with
	Live     bool // by a migration
	All      []Changed
}

// Due are the volumes whose disks a migration is to send into their new claims: all that changed, or none.
func (u Updates) Due() []Changed {
	if !u.Live || slices.ContainsFunc(u.All, func(c Changed) bool { return c.Cause != "" }) {
		return nil
	}
	return u.All
}

// Has reports whether the disk of a volume is sent into a new claim.
func (u Updates) Has(volume string) bool {
	return slices.ContainsFunc(u.Due(), func(c Changed) bool { return c.Volume == volume })
}

// Names say which volumes are to be in which claims, for comparing.
func (u Updates) Names() map[string]string {
	out := map[string]string{}
	for _, c := range u.Due() {
		out[c.Volume], _ = render.ClaimOf(c.To)
	}
	return out
}

// observeUpdates compares the volumes of the instance with those of its machine.
func (r *Reader) observeUpdates(ctx context.Context, s *Instance) error {
	owner := metav1.GetControllerOf(s.Object)
	if s.Launcher == nil || owner == nil || owner.Kind != "VirtualMachine" {
		return nil
	}
	vm, err := cluster.Get[kubevirt.VirtualMachine](ctx, r.Cached, s.Object.Namespace, owner.Name)
	if err != nil || vm == nil || vm.UID != owner.UID || vm.Spec.Template == nil {
		return err
	}
	s.Updates.Compared = true
	s.Updates.Live = ptr.Deref(vm.Spec.UpdateVolumesStrategy, "") == kubevirt.UpdateByMigration
	wanted := NewInstance(vm).Spec.Volumes
	unready, err := r.UnreadyVolumes(ctx, s.Object, wanted)
	if err != nil {
		return err
	}
	for _, v := range s.Object.Spec.Volumes {
		at := slices.IndexFunc(wanted, func(w kubevirt.Volume) bool { return w.Name == v.Name })
		old, _ := render.ClaimOf(v)
		if at < 0 || old == "" || diskstate.ClaimIn(s.Launcher, v) != old && launcherpod.Machine(s.Launcher).Updated[v.Name] != "" {
			continue // it has come, and the instance is about to be told
		}
		if next, _ := render.ClaimOf(wanted[at]); next == "" || next == old || s.exchanged(v, wanted[at], unready) {
			continue
		}
		c := Changed{Volume: v.Name, To: wanted[at]}
		if n := slices.IndexFunc(s.Disks, func(d diskstate.Disk) bool { return d.Name == v.Name }); n >= 0 {
			c.From = s.Disks[n]
		}
		if err := r.judgeUpdate(ctx, s, v, &c); err != nil {
			return err
		}
		s.Updates.All = append(s.Updates.All, c)
	}
	return nil
}

// judgeUpdate finds out whether a disk can be sent into its new claim.
func (r *Reader) judgeUpdate(ctx context.Context, s *Instance, v kubevirt.Volume, c *Changed) error {
	name, readOnly := render.ClaimOf(c.To)
	old, _ := render.ClaimOf(v)
	drive := s.Drive(v.Name)
	var err error
	if c.Claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Cached, s.Object.Namespace, name); err != nil {
		return err
	}
	switch {
	case c.From.Claim == nil:
		c.Cause = state.UpdateAdded
	case c.From.Copied != nil || c.To.Copied() != nil:
		c.Cause = state.UpdateCopied
	case drive.LUN != nil || drive.CDRom != nil:
		c.Cause = state.UpdateDrive
	case c.From.Mode != accessv1.WriteExclusive || diskstate.Mode(c.To, drive) != accessv1.WriteExclusive || readOnly:
		c.Cause = state.UpdateShared
	case c.From.Direct != nil:
		c.Cause = state.UpdateDirect
	case diskstate.ClaimIn(s.Launcher, v) != old:
		c.Cause = state.UpdateReplaced
	case c.Claim == nil || c.Claim.DeletionTimestamp != nil:
		c.Cause = state.UpdateMissing
	case modeOf(c.Claim) != modeOf(c.From.Claim):
		c.Cause, c.Detail = state.UpdateMode, fmt.Sprintf("%s and %s", modeOf(c.From.Claim), modeOf(c.Claim))
	case (diskstate.Disk{Claim: c.Claim}).Capacity() < c.From.Capacity():
		c.Cause, c.Detail = state.UpdateSmaller, fmt.Sprintf("%d and %d bytes", c.From.Capacity(), (diskstate.Disk{Claim: c.Claim}).Capacity())
	}
	for _, o := range s.Object.Spec.Volumes {
		if of, _ := render.ClaimOf(o); of == name && c.Cause == "" {
			c.Cause, c.Detail = state.UpdateTwice, o.Name
		}
	}
	if c.Cause == "" {
		return r.judgeClaim(ctx, s, c)
	}
	return nil
}

// judgeClaim checks that no other user has the claim, and that it is not being filled.
func (r *Reader) judgeClaim(ctx context.Context, s *Instance, c *Changed) error {
	if r.Data {
		v, err := cluster.Get[cdiv1.DataVolume](ctx, r.Cached, c.Claim.Namespace, c.Claim.Name)
		if err != nil {
			return err
		}
		waits := v != nil && !(diskstate.Disk{Volume: v}).In(cdiv1.Succeeded, cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation)
		if waits && !slices.ContainsFunc(s.Others, func(p *corev1.Pod) bool { return diskstate.UpdatedClaims(p)[c.Volume] == c.Claim.Name }) {
			c.Cause, c.Detail = state.UpdateFilling, diskstate.Filling(v)
			return nil
		}
	}
	writers, err := claimusers.Of(ctx, r.Cached, c.Claim)
	if err != nil {
		return err
	}
	for _, p := range writers {
		ours := func(o *corev1.Pod) bool { return o != nil && o.UID == p.UID }
		if !ours(s.Launcher) && !slices.ContainsFunc(s.Others, ours) {
			c.Cause, c.Detail = state.UpdateUsed, "pod "+p.Name
			return nil
		}
	}
	pv, err := r.VolumeOf(ctx, c.Claim)
	if err != nil || pv == nil {
		return err
	}
	if err := r.judgeNodes(ctx, s, c, pv); err != nil || c.Cause != "" {
		return err
	}
	record, err := cluster.Get[accessv1.DiskAccess](ctx, r.Cached, "", identity.Volume(pv).Name())
	if err != nil || record == nil {
		return err
	}
	for _, h := range record.Spec.Holders {
		if h.UID != s.Object.UID {
			c.Cause, c.Detail = state.UpdateUsed, "another machine"
			if h.Namespace == s.Object.Namespace {
				c.Detail = "machine " + h.Machine
			}
		}
	}
	return nil
}

// judgeNodes checks that a pod can run on a node of the claim's volume. A target that exists already is not checked; one without a
// node would wait for ever, and prevent the guest from leaving its node.
func (r *Reader) judgeNodes(ctx context.Context, s *Instance, c *Changed, pv *corev1.PersistentVolume) error {
	there := func(p *corev1.Pod) bool {
		return p.Spec.NodeName != "" && diskstate.UpdatedClaims(p)[c.Volume] == c.Claim.Name
	}
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil || slices.ContainsFunc(s.Others, there) {
		return nil
	}
	in, err := nodeselect.In(ctx, r.Cached, pv.Spec.NodeAffinity.Required)
	if err != nil {
		return err
	}
	var closed []string
	for _, n := range in {
		left := n.Name == s.Launcher.Spec.NodeName && s.Launcher.Annotations[render.AnnEvacuate] != ""
		if n.Spec.Unschedulable || left {
			closed = append(closed, "node "+n.Name)
		}
	}
	if len(closed) > 0 && len(closed) == len(in) {
		c.Cause, c.Detail = state.UpdateClosed, strings.Join(closed, " and ")
	}
	return nil
}

func modeOf(c *corev1.PersistentVolumeClaim) corev1.PersistentVolumeMode {
	return ptr.Deref(c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}
