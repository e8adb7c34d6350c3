package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
)

// asker says what a launcher said last of the disks its guest was asked to give back, and asks it again.
type asker func(launcher *corev1.Pod) (launcherapi.Returns, error)

// returnsAgain is how often a launcher is asked while a disk is waited for: it cannot speak up by itself. answerAfter is when
// it has answered the first time, if it answers at all.
const (
	returnsAgain = 5 * time.Second
	answerAfter  = time.Second
)

// observeReturns asks the launcher about the disks that its guest is to give back, if there are any. A launcher that does
// not answer is asked again.
func (r *Reconciler) observeReturns(ctx context.Context, s *run) error {
	s.removed = s.removedVolumes()
	if err := r.observeSurplus(ctx, s); err != nil {
		return err
	}
	waits := len(s.removed) > 0 || len(s.surplus) > 0 || slices.ContainsFunc(s.hot, (*hot).awaited)
	if !waits || !cluster.OwnedBy(s.launcher, s.instance.UID) {
		return nil
	}
	var err error
	s.returns, err = r.ask(s.launcher)
	s.asked = errors.Is(err, probe.ErrNoAnswerYet)
	if err != nil {
		log.FromContext(ctx).V(1).Info("no word of disks to be given back", "launcher", s.launcher.Name, "error", err.Error())
	}
	s.answered = err == nil
	return nil
}

// observeSurplus finds the disks that the launcher has a record of and that are no volume of the machine any more: they were
// added and removed. Nothing is found as long as one of its volumes cannot be told.
func (r *Reconciler) observeSurplus(ctx context.Context, s *run) error {
	var records accessv1.DiskAccessList
	if err := r.reader.List(ctx, &records, client.HasLabels{diskaccess.HolderLabel(s.launcher.UID)}); err != nil {
		return fmt.Errorf("list the disks of the launcher: %w", err)
	}
	s.keeps = map[string]bool{}
	for _, h := range s.hot {
		if !h.wanted || h.is != machine.Ready {
			return nil
		}
		s.keeps[h.id.Name()] = true
		if h.pv != nil {
			if was, is := identity.Former(h.pv); is {
				s.keeps[was.Name()] = true
			}
		}
	}
	for _, d := range s.disks {
		if d.is == machine.Ready {
			s.keeps[d.id.Name()] = true
		}
	}
	for _, v := range s.launcher.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, s.launcher.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return err
		}
		pv, err := r.volumeOf(ctx, c)
		if err != nil || pv == nil {
			return err
		}
		s.keeps[identity.Volume(pv).Name()] = true
		if was, is := identity.Former(pv); is {
			s.keeps[was.Name()] = true
		}
	}
	m, ok := launcherpod.ReadMachine(s.launcher)
	if !ok {
		return nil
	}
	for _, v := range m.Spec.Volumes { // as with claims: what it was started with is the launcher's until it ends
		if !v.Networked() {
			continue
		}
		for _, servers := range [][]string{nil, serversOf(s.launcher, v)} {
			if id, err := identity.Network(v.NetworkSource, servers...); err == nil {
				s.keeps[id.Name()] = true
			}
		}
	}
	for i := range records.Items {
		if name := records.Items[i].Name; !s.keeps[name] {
			s.surplus = append(s.surplus, name)
		}
	}
	return nil
}

// dropSurplus frees them when the launcher says that its guest has none of them.
func (r *Reconciler) dropSurplus(ctx context.Context, s *run) error {
	has := slices.ContainsFunc(s.returns.Has, func(name string) bool {
		return !slices.ContainsFunc(s.hot, func(h *hot) bool { return h.name == name })
	})
	// An answer may be an old one: it counts if the launcher had the orders that no longer have these disks.
	if len(s.surplus) == 0 || !s.answered || has || s.returns.Serial != s.lastOrders().Serial || !equality.Semantic.DeepEqual(s.diskOrders(), s.lastOrders()) {
		return nil
	}
	return r.records.GiveBack(ctx, s.launcher.UID, s.keeps)
}

// awaited: the guest is to give the disk back and has it.
func (h *hot) awaited() bool { return !h.wanted && situation(h.holder) == machine.Up }

// observeWaits asks the launcher of a guest that runs, or whose copies are made, whether it waits for a disk, how far copies are and what is known of it.
func (r *Reconciler) observeWaits(ctx context.Context, s *run) {
	if situation(s.launcher) != machine.Up && !s.makesCopies() || !cluster.OwnedBy(s.launcher, s.instance.UID) {
		return
	}
	var err error
	s.returns, err = r.ask(s.launcher)
	s.asked = errors.Is(err, probe.ErrNoAnswerYet)
	s.heard = err == nil
	if err != nil {
		log.FromContext(ctx).V(1).Info("no answer about the guest", "launcher", s.launcher.Name, "error", err.Error())
	}
}

// networked: some of its disks are at servers, or were when it was started.
func (s *run) networked() bool {
	return slices.ContainsFunc(s.instance.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Networked() }) ||
		slices.ContainsFunc(s.disks, func(d disk) bool { return d.direct != nil }) ||
		s.launcher != nil && len(s.lastOrders().Network) > 0 || s.mayBeEarly()
}

// lookAgain is when to ask the launcher next; 0 if there is nothing to ask.
func (s *run) lookAgain() time.Duration {
	if s.asked || s.logInAwaited() && situation(s.launcher) == machine.Placed {
		return answerAfter
	}
	if s.keepsOn() {
		return keepAgain
	}
	if up := situation(s.launcher) == machine.Up; up && s.pauseUnsettled() {
		return answerAfter
	} else if up && (s.networked() || s.returns.Paused) {
		return returnsAgain
	}
	if again := s.copiesAgain(); again > 0 {
		return again
	}
	if len(s.awaited()) > 0 || len(s.surplus) > 0 || slices.ContainsFunc(s.hot, (*hot).awaited) {
		return returnsAgain
	}
	if situation(s.launcher) == machine.Up {
		return describeAgain
	}
	return 0
}

// awaited are the volumes that the machine was started with and that the guest has not given back.
func (s *run) awaited() []string {
	return slices.DeleteFunc(slices.Clone(s.removed), func(name string) bool { return slices.Contains(s.returns.Given, name) })
}

// awaitedStatus is what is said of such a volume.
func (s *run) awaitedStatus(name string) kubevirt.VolumeStatus {
	plan := machine.Hotplug(machine.HotFacts{Holder: machine.Up, Kept: s.returns.Kept[name] != ""})
	return kubevirt.VolumeStatus{Name: name, Phase: plan.Phase, Reason: plan.Reason, Message: s.returns.Kept[name]}
}

// complain makes an event of every volume that the guest does not give back and that was not complained of before.
func (r *Reconciler) complain(i *kubevirt.VirtualMachineInstance, now []kubevirt.VolumeStatus) {
	for _, v := range now {
		known := slices.ContainsFunc(i.Status.VolumeStatus, func(x kubevirt.VolumeStatus) bool { return x.Name == v.Name && x.Reason == v.Reason })
		if v.Reason == machine.GuestKeepsIt && !known {
			r.cluster.Event(i, corev1.EventTypeWarning, machine.GuestKeepsIt, fmt.Sprintf("volume %s: %s", v.Name, v.Message))
		}
	}
}
