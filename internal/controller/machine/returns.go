package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/ask"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launch"
)

// asker says what a launcher said last of the disks its guest was asked to give back, and asks it again.
type asker func(launcher *corev1.Pod) (launch.Returns, error)

// returnsAgain is how often a launcher is asked while a disk is waited for: it cannot speak up by itself. answerAfter is when
// it has answered the first time, if it answers at all.
const (
	returnsAgain = 5 * time.Second
	answerAfter  = time.Second
)

// observeReturns asks the launcher about the disks that its guest is to give back, if there are any. A launcher that does
// not answer is asked again.
func (r *Reconciler) observeReturns(ctx context.Context, s *run) {
	for _, v := range s.launcher.Spec.Volumes {
		listed := slices.ContainsFunc(s.instance.Spec.Volumes, func(x kubevirt.Volume) bool { return x.Name == v.Name })
		if v.PersistentVolumeClaim != nil && !listed {
			s.removed = append(s.removed, v.Name)
		}
	}
	waits := len(s.removed) > 0 || slices.ContainsFunc(s.hot, (*hot).awaited)
	if !waits || !cluster.OwnedBy(s.launcher, s.instance.UID) {
		return
	}
	var err error
	s.returns, err = r.ask(s.launcher)
	s.asked = errors.Is(err, ask.ErrNoAnswerYet)
	if err != nil {
		log.FromContext(ctx).V(1).Info("no word of disks to be given back", "launcher", s.launcher.Name, "error", err.Error())
	}
}

// awaited: the guest is to give the disk back and has it.
func (h *hot) awaited() bool { return !h.wanted && situation(h.holder) == machine.Up }

// observeWaits asks a launcher with network disks whether its guest waits for one.
func (r *Reconciler) observeWaits(ctx context.Context, s *run) {
	if !s.networked() || situation(s.launcher) != machine.Up || !cluster.OwnedBy(s.launcher, s.instance.UID) {
		return
	}
	var err error
	s.returns, err = r.ask(s.launcher)
	s.asked = errors.Is(err, ask.ErrNoAnswerYet)
	if err != nil {
		log.FromContext(ctx).V(1).Info("no word of network disks", "launcher", s.launcher.Name, "error", err.Error())
	}
}

// networked: some of its disks are at servers.
func (s *run) networked() bool {
	return slices.ContainsFunc(s.instance.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Networked() })
}

// lookAgain is when to ask the launcher next; 0 if there is nothing to ask.
func (s *run) lookAgain() time.Duration {
	if s.asked {
		return answerAfter
	}
	if s.networked() && situation(s.launcher) == machine.Up {
		return returnsAgain
	}
	if len(s.awaited()) > 0 || slices.ContainsFunc(s.hot, (*hot).awaited) {
		return returnsAgain
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
