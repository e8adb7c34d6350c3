package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/claimusers"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/decide/update"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// A volume of a running machine that its owner changes to another claim is sent there by a migration whose target has the other claim. The
// target's own orders say which; the instance is given the new claims when the guest has come. docs/decisions/0022 has the reasons.

const (
	updating = "kubevirt-volumes-" // the first letters of the names of migrations that are made for it
	// updateAgain is how often a change that cannot be made is looked at: what is in the way is not always something that we watch.
	updateAgain = 10 * time.Second
)

// changed is a volume that is to be in another claim than its disk.
type changed struct {
	volume string
	from   disk
	to     kubevirt.Volume               // as the machine has it now
	claim  *corev1.PersistentVolumeClaim // nil: it is not there
	cause  state.UpdateCause             // why it cannot be sent; empty: it can
	detail string
}

// updates are the changed volumes of a running machine, and what is done about them.
type updates struct {
	compared bool // there is a guest, and a machine to compare it with
	live     bool // by a migration
	all      []changed
}

// updatePlan is what is done about changed volumes, and what is said of it.
type updatePlan struct {
	plan  update.Plan
	tries tries
	stale *kubevirt.VirtualMachineInstanceMigration // sends disks into claims that are not wanted any more; nil: none does
	row   state.UpdateRow
	text  string // empty: there is nothing to say
	again time.Duration
}

// due are the volumes whose disks a migration is to send into their new claims: all that changed, or none.
func (u updates) due() []changed {
	if !u.live || slices.ContainsFunc(u.all, func(c changed) bool { return c.cause != "" }) {
		return nil
	}
	return u.all
}

func (u updates) has(volume string) bool {
	return slices.ContainsFunc(u.due(), func(c changed) bool { return c.volume == volume })
}

// names say which volumes are to be in which claims, for comparing.
func (u updates) names() map[string]string {
	out := map[string]string{}
	for _, c := range u.due() {
		out[c.volume], _ = render.ClaimOf(c.to)
	}
	return out
}

// observeUpdates compares the volumes of the instance with those of its machine.
func (r *Reconciler) observeUpdates(ctx context.Context, s *run) error {
	owner := metav1.GetControllerOf(s.instance)
	if s.launcher == nil || owner == nil || owner.Kind != "VirtualMachine" {
		return nil
	}
	vm, err := cluster.Get[kubevirt.VirtualMachine](ctx, r.reader, s.instance.Namespace, owner.Name)
	if err != nil || vm == nil || vm.UID != owner.UID || vm.Spec.Template == nil {
		return err
	}
	s.updates.compared = true
	s.updates.live = ptr.Deref(vm.Spec.UpdateVolumesStrategy, "") == kubevirt.UpdateByMigration
	wanted := newInstance(vm).Spec.Volumes
	unready, err := r.unreadyVolumes(ctx, s.instance, wanted)
	if err != nil {
		return err
	}
	for _, v := range s.instance.Spec.Volumes {
		at := slices.IndexFunc(wanted, func(w kubevirt.Volume) bool { return w.Name == v.Name })
		old, _ := render.ClaimOf(v)
		if at < 0 || old == "" || claimIn(s.launcher, v) != old && launcherpod.Machine(s.launcher).Updated[v.Name] != "" {
			continue // it has come, and the instance is about to be told
		}
		if next, _ := render.ClaimOf(wanted[at]); next == "" || next == old || s.exchanged(v, wanted[at], unready) {
			continue
		}
		c := changed{volume: v.Name, to: wanted[at]}
		if n := slices.IndexFunc(s.disks, func(d disk) bool { return d.name == v.Name }); n >= 0 {
			c.from = s.disks[n]
		}
		if err := r.judgeUpdate(ctx, s, v, &c); err != nil {
			return err
		}
		s.updates.all = append(s.updates.all, c)
	}
	return nil
}

// judgeUpdate finds out whether a disk can be sent into its new claim.
func (r *Reconciler) judgeUpdate(ctx context.Context, s *run, v kubevirt.Volume, c *changed) error {
	name, readOnly := render.ClaimOf(c.to)
	old, _ := render.ClaimOf(v)
	drive := s.drive(v.Name)
	var err error
	if c.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, s.instance.Namespace, name); err != nil {
		return err
	}
	switch {
	case c.from.claim == nil:
		c.cause = state.UpdateAdded
	case c.from.copied != nil || c.to.Copied() != nil:
		c.cause = state.UpdateCopied
	case drive.LUN != nil || drive.CDRom != nil:
		c.cause = state.UpdateDrive
	case c.from.mode != accessv1.WriteExclusive || mode(c.to, drive) != accessv1.WriteExclusive || readOnly:
		c.cause = state.UpdateShared
	case c.from.direct != nil:
		c.cause = state.UpdateDirect
	case claimIn(s.launcher, v) != old:
		c.cause = state.UpdateReplaced
	case c.claim == nil || c.claim.DeletionTimestamp != nil:
		c.cause = state.UpdateMissing
	case modeOf(c.claim) != modeOf(c.from.claim):
		c.cause, c.detail = state.UpdateMode, fmt.Sprintf("%s and %s", modeOf(c.from.claim), modeOf(c.claim))
	case (disk{claim: c.claim}).room() < c.from.room():
		c.cause, c.detail = state.UpdateSmaller, fmt.Sprintf("%d and %d bytes", c.from.room(), (disk{claim: c.claim}).room())
	}
	for _, o := range s.instance.Spec.Volumes {
		if of, _ := render.ClaimOf(o); of == name && c.cause == "" {
			c.cause, c.detail = state.UpdateTwice, o.Name
		}
	}
	if c.cause == "" {
		return r.judgeClaim(ctx, s, c)
	}
	return nil
}

// judgeClaim: nobody else has the claim, and nobody fills it.
func (r *Reconciler) judgeClaim(ctx context.Context, s *run, c *changed) error {
	if r.data {
		v, err := cluster.Get[cdiv1.DataVolume](ctx, r.reader, c.claim.Namespace, c.claim.Name)
		if err != nil {
			return err
		}
		waits := v != nil && !(disk{volume: v}).in(cdiv1.Succeeded, cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation)
		if waits && !slices.ContainsFunc(s.others, func(p *corev1.Pod) bool { return updatedClaims(p)[c.volume] == c.claim.Name }) {
			c.cause, c.detail = state.UpdateFilling, filling(v)
			return nil
		}
	}
	writers, err := claimusers.Of(ctx, r.reader, c.claim)
	if err != nil {
		return err
	}
	for _, p := range writers {
		ours := func(o *corev1.Pod) bool { return o != nil && o.UID == p.UID }
		if !ours(s.launcher) && !slices.ContainsFunc(s.others, ours) {
			c.cause, c.detail = state.UpdateUsed, "pod "+p.Name
			return nil
		}
	}
	pv, err := r.volumeOf(ctx, c.claim)
	if err != nil || pv == nil {
		return err
	}
	if err := r.judgeNodes(ctx, s, c, pv); err != nil || c.cause != "" {
		return err
	}
	record, err := cluster.Get[accessv1.DiskAccess](ctx, r.reader, "", identity.Volume(pv).Name())
	if err != nil || record == nil {
		return err
	}
	for _, h := range record.Spec.Holders {
		if h.UID != s.instance.UID {
			c.cause, c.detail = state.UpdateUsed, "another machine"
			if h.Namespace == s.instance.Namespace {
				c.detail = "machine " + h.Machine
			}
		}
	}
	return nil
}

// judgeNodes: a pod can be had where the volume of the claim is. A target that is there already is not disturbed; one that has no node yet would
// wait for it in vain, and keep a guest that is to leave.
func (r *Reconciler) judgeNodes(ctx context.Context, s *run, c *changed, pv *corev1.PersistentVolume) error {
	there := func(p *corev1.Pod) bool {
		return p.Spec.NodeName != "" && updatedClaims(p)[c.volume] == c.claim.Name
	}
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil || slices.ContainsFunc(s.others, there) {
		return nil
	}
	in, err := nodeselect.In(ctx, r.reader, pv.Spec.NodeAffinity.Required)
	if err != nil {
		return err
	}
	var closed []string
	for _, n := range in {
		left := n.Name == s.launcher.Spec.NodeName && s.launcher.Annotations[render.AnnEvacuate] != ""
		if n.Spec.Unschedulable || left {
			closed = append(closed, "node "+n.Name)
		}
	}
	if len(closed) > 0 && len(closed) == len(in) {
		c.cause, c.detail = state.UpdateClosed, strings.Join(closed, " and ")
	}
	return nil
}

func modeOf(c *corev1.PersistentVolumeClaim) corev1.PersistentVolumeMode {
	return ptr.Deref(c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

// planUpdate decides what is done about changed volumes.
func (r *Reconciler) planUpdate(ctx context.Context, s *run) (updatePlan, error) {
	if !s.updates.compared {
		return updatePlan{}, nil
	}
	all, err := r.migrationsOf(ctx, s.instance.Namespace, s.instance.Name)
	if err != nil {
		return updatePlan{}, err
	}
	u := updatePlan{tries: r.tries(&s.base, all, updating), stale: s.staleUpdate(all)}
	facts := update.Facts{Live: s.updates.live, Guest: update.Guest(s.leaver()), Moves: update.Moves(u.tries.moves), Stale: u.stale != nil}
	switch {
	case len(s.updates.all) > 0 && slices.ContainsFunc(s.updates.all, func(c changed) bool { return c.cause != "" }):
		facts.Change = update.Refused
	case len(s.updates.all) > 0:
		facts.Change = update.Possible
	}
	u.plan = update.Decide(facts)
	if len(u.plan.Do) > 0 {
		log.FromContext(ctx).V(1).Info("decided", "rule", u.plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", u.plan.Do)
	}
	if u.plan.State == "" {
		return u, nil
	}
	u.row, u.again = state.OfUpdate(u.plan.State), u.tries.due
	if u.plan.State == state.UpdateRefused || u.plan.State == state.UpdateFixed {
		u.again = updateAgain
	}
	u.text = u.row.Text(s.updateText(u.plan.State, u.tries))
	return u, nil
}

// updateVolumes has the disks of changed volumes sent into their new claims.
func (r *Reconciler) updateVolumes(ctx context.Context, s *run, u updatePlan) error {
	for _, a := range u.plan.Do {
		var err error
		switch a {
		case update.CallOff:
			err = r.cluster.Delete(ctx, u.stale)
		case update.Migrate:
			err = r.makeMigration(ctx, &s.base, u.tries, metav1.ObjectMeta{Labels: map[string]string{kubevirt.LabelVolumeUpdate: s.instance.Name}})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return nil
}

// staleUpdate is a migration that was made for changed volumes, and whose claims are not the ones that are wanted any more; nil: there is
// none. One whose guest has come has done its work.
func (s *run) staleUpdate(all []kubevirt.VirtualMachineInstanceMigration) *kubevirt.VirtualMachineInstanceMigration {
	for i := range all {
		m := &all[i]
		if m.Ended() || m.DeletionTimestamp != nil || !strings.HasPrefix(m.Name, updating) || !cluster.OwnedBy(m, s.instance.UID) ||
			launcherpod.Incoming(s.launcher) == m.UID {
			continue
		}
		name := launcherpod.TargetName(s.instance, m.UID)
		at := slices.IndexFunc(s.others, func(p *corev1.Pod) bool { return p.Name == name })
		if at >= 0 && s.adopted(s.others[at]) {
			continue // its guest has come, and only the launchers do not say so yet
		}
		if len(s.updates.due()) == 0 || at >= 0 && !maps.Equal(updatedClaims(s.others[at]), s.updates.names()) {
			return m
		}
	}
	return nil
}

// adopted reports whether the instance has the claims that a target has for changed volumes: that is written when the guest has come.
func (s *run) adopted(target *corev1.Pod) bool {
	updated := updatedClaims(target)
	for _, v := range s.instance.Spec.Volumes {
		if name, _ := render.ClaimOf(v); name == updated[v.Name] {
			delete(updated, v.Name)
		}
	}
	return len(updated) == 0 && len(launcherpod.Machine(target).Updated) > 0
}

func (s *run) updateText(reason state.UpdateReason, t tries) string {
	if reason == state.UpdateFixed {
		_, why := s.fixed()
		return why
	}
	var texts []string
	for _, c := range s.updates.all {
		name, _ := render.ClaimOf(c.to)
		switch {
		case reason == state.UpdateRefused && c.cause != "":
			texts = append(texts, state.OfUpdateCause(c.cause, c.volume, name, c.detail))
		case reason != state.UpdateRefused:
			texts = append(texts, fmt.Sprintf("volume %s to PersistentVolumeClaim %s", c.volume, name))
		}
	}
	text := strings.Join(texts, "; ")
	if reason == state.UpdateMoving || reason == state.UpdateResting {
		text += " (" + t.text + ")"
	}
	return text
}

// volumesChange is said on the instance while its volumes are not those of its machine, as upstream has it.
func (u updatePlan) condition() []kubevirt.Condition {
	if u.text == "" {
		return nil
	}
	return []kubevirt.Condition{{Type: "VolumesChange", Status: truth(!u.row.Restart), Reason: string(u.row.Reason), Message: u.text}}
}

// migrated are the volumes whose disks are being sent into other claims.
func (s *run) migrated() []kubevirt.MigratedVolume {
	var out []kubevirt.MigratedVolume
	for _, c := range s.updates.due() {
		out = append(out, kubevirt.MigratedVolume{VolumeName: c.volume, SourcePVCInfo: c.from.status().PersistentVolumeClaimInfo,
			DestinationPVCInfo: (disk{claim: c.claim}).status().PersistentVolumeClaimInfo})
	}
	return out
}

// observePartial looks for claims of a machine that does not run that have only a part of a disk.
func (r *Reconciler) observePartial(ctx context.Context, w *whole) error {
	if w.run != nil && w.run.launcher != nil || w.vm.Spec.Template == nil {
		return nil
	}
	for _, v := range newInstance(w.vm).Spec.Volumes {
		name, _ := render.ClaimOf(v)
		if name == "" {
			continue
		}
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, w.vm.Namespace, name)
		if err != nil {
			return err
		}
		if text := partial(c); text != "" {
			w.partial = text
		}
	}
	return nil
}

// updateConditions are what upstream says of a running machine that was changed.
func (w *whole) updateConditions(u updatePlan) []kubevirt.Condition {
	out := w.restartRequired(u)
	if w.partial != "" {
		out = append(out, kubevirt.Condition{Type: "ManualRecoveryRequired", Status: corev1.ConditionTrue, Reason: "VolumesIncomplete", Message: w.partial})
	}
	return out
}

func (w *whole) updateState() *kubevirt.VolumeUpdateState {
	if w.run == nil || len(w.run.migrated()) == 0 {
		return nil
	}
	return &kubevirt.VolumeUpdateState{VolumeMigrationState: &kubevirt.VolumeMigrationState{MigratedVolumes: w.run.migrated()}}
}
