package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherexec"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// Finalizer keeps an instance until its pods are gone, so that the next one never meets them on its disks.
const Finalizer = "berth.dev/pods"

// reconcileInstance brings one instance a step further.
func (r *Reconciler) reconcileInstance(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.reader, req.Namespace, req.Name)
	if err != nil || i == nil {
		return ctrl.Result{}, err
	}
	if i.DeletionTimestamp == nil && !slices.Contains(i.Finalizers, Finalizer) {
		return ctrl.Result{}, r.cluster.Mark(ctx, i, cluster.Marks{Finalizers: []string{Finalizer}})
	}
	s, err := r.observe(ctx, i)
	if err != nil {
		return ctrl.Result{}, err
	}
	if kept, err := r.keep(ctx, s.launcher); err != nil || !kept {
		return ctrl.Result{}, err // the change brings it back
	}
	facts := s.facts()
	plan := machine.Instance(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		if err := r.act(ctx, a, s); err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", a, err)
		}
		if a == machine.Forget {
			return ctrl.Result{}, nil
		}
	}
	for _, step := range []func(context.Context, *run) error{r.giveMasters, r.keepCopies, r.markOutdated} {
		if err := step(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	leaves, err := r.evacuate(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	update, err := r.planUpdate(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.updateVolumes(ctx, s, update); err != nil {
		return ctrl.Result{}, err
	}
	if plan.State == state.GuestRunning {
		for _, step := range []func(context.Context, *run) error{r.observeReturns, r.hotplug, r.dropSurplus} {
			if err := step(ctx, s); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	if err := r.reportInstance(ctx, s, plan.State, leaves, update); err != nil {
		return ctrl.Result{}, err
	}
	if len(s.returning) > 0 {
		return ctrl.Result{RequeueAfter: returnAgain}, nil
	}
	if plan.State == state.DiskInUse || s.unallowed() {
		return ctrl.Result{RequeueAfter: accessAgain}, nil
	}
	return ctrl.Result{RequeueAfter: sooner(sooner(s.lookAgain(), leaves.again), update.again)}, nil
}

// accessAgain is how often to look at a disk that somebody else has, if nobody tells us that it is free.
const accessAgain = 15 * time.Second

// keep adds the finalizer that keeps a launcher until its end is certain, also to pods that were made without it or that lost it.
func (r *Reconciler) keep(ctx context.Context, p *corev1.Pod) (bool, error) {
	if p == nil || p.DeletionTimestamp != nil || podend.Over(p) || slices.Contains(p.Finalizers, render.LauncherEnd) {
		return true, nil
	}
	next := p.DeepCopy()
	next.Finalizers = append(next.Finalizers, render.LauncherEnd)
	return false, r.cluster.Change(ctx, p, next)
}

// markOutdated labels an instance whose guest runs in another image than a new one would, as after an upgrade: the guest is left alone
// until somebody restarts or moves it.
func (r *Reconciler) markOutdated(ctx context.Context, s *run) error {
	_, marked := s.instance.Labels[kubevirt.LabelOutdated]
	outdated := s.launcher != nil && !podend.Over(s.launcher) && slices.ContainsFunc(s.launcher.Spec.Containers,
		func(c corev1.Container) bool { return c.Name == launcherexec.Container && c.Image != r.options.Image })
	if s.instance.DeletionTimestamp != nil || marked == outdated {
		return nil
	}
	marks := cluster.Marks{Finalizers: []string{Finalizer}}
	if outdated {
		marks.Labels = map[string]string{kubevirt.LabelOutdated: ""}
	}
	return r.cluster.Mark(ctx, s.instance, marks)
}

func (r *Reconciler) act(ctx context.Context, a machine.Action, s *run) error {
	switch a {
	case machine.StartConsumer:
		return r.start(ctx, s, render.Consumer)
	case machine.StartLauncher:
		return r.start(ctx, s, render.Launcher)
	case machine.StopConsumer:
		return r.cluster.Delete(ctx, s.consumer)
	case machine.StopLauncher:
		return r.cluster.DeleteWithin(ctx, s.launcher, render.GracePeriod(s.instance.Spec)) // it may have been changed since
	case machine.StopOthers:
		return r.stopOthers(ctx, s)
	case machine.Nominate:
		return r.cluster.ApplyStatus(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.launcher.Namespace, Name: s.launcher.Name, UID: s.launcher.UID},
			Status:     corev1.PodStatus{NominatedNodeName: s.consumer.Spec.NodeName}})
	case machine.NoteServers:
		return r.noteServers(ctx, s)
	case machine.TakeDisks:
		return r.take(ctx, taker{pod: s.launcher, instance: s.instance}, s.disks)
	case machine.GiveDisks:
		return r.records.GiveBack(ctx, s.launcher.UID, nil)
	case machine.Release:
		if err := r.recordStart(ctx, s.instance); err != nil {
			return err
		}
		return r.cluster.Mark(ctx, s.launcher, cluster.Marks{Annotations: s.word()})
	case machine.Forget:
		return r.cluster.Mark(ctx, s.instance, cluster.Marks{})
	case machine.CreateDisks, machine.CreateInstance, machine.DeleteInstance, machine.AskStart, machine.TakeRequest,
		machine.StartHotConsumer, machine.StopHotConsumer, machine.StartHolder, machine.StopHolder, machine.GiveMaster,
		machine.RecordBegun, machine.RecordKept, machine.SetAlways:
	}
	return fmt.Errorf("%s is not an action on an instance", a)
}

func (r *Reconciler) start(ctx context.Context, s *run, p render.Payload) error {
	pod, err := s.pods.Pod(p)
	if err != nil {
		return err
	}
	if err := r.unreplaced(ctx, s); err != nil {
		return err
	}
	if err := r.neverRan(ctx, s.instance); err != nil {
		return err
	}
	if p == render.Launcher {
		if err := r.lend(ctx, s.disks); err != nil {
			return err
		}
	}
	err = r.cluster.Create(ctx, pod)
	if errors.Is(err, cluster.ErrTaken) {
		r.cluster.Event(s.instance, corev1.EventTypeWarning, "FailedCreate", err.Error())
	}
	return err
}
