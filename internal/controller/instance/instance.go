package instance

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
	"github.com/berth-vm/berth/internal/controller/grant"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/podend"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherexec"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// Finalizer keeps an instance until its pods are gone, so that the next one never meets them on its disks.
const Finalizer = "berth.dev/pods"

// Reconcile brings one instance a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.Read.Cached, req.Namespace, req.Name)
	if err != nil || i == nil {
		return ctrl.Result{}, err
	}
	if i.DeletionTimestamp == nil && !slices.Contains(i.Finalizers, Finalizer) {
		return ctrl.Result{}, r.Cluster.Mark(ctx, i, cluster.Marks{Finalizers: []string{Finalizer}})
	}
	s, err := r.Read.Instance(ctx, i)
	if err != nil {
		return ctrl.Result{}, err
	}
	if kept, err := r.addFinalizer(ctx, s.Launcher); err != nil || !kept {
		return ctrl.Result{}, err // the change brings it back
	}
	facts := s.Facts()
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
	for _, step := range []func(context.Context, *observed.Instance) error{r.Releases.GiveMasters, r.Keeps.Keep, r.MarkOutdated} {
		if err := step(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	leaves, err := r.Evacuation.Evacuate(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	update, err := r.Updates.Plan(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.Updates.Update(ctx, s, update); err != nil {
		return ctrl.Result{}, err
	}
	if plan.State == state.GuestRunning {
		for _, step := range []func(context.Context, *observed.Instance) error{r.Read.Returns, r.Hotplug.Hotplug, r.Releases.DropSurplus} {
			if err := step(ctx, s); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	if err := r.report(ctx, s, plan.State, leaves, update); err != nil {
		return ctrl.Result{}, err
	}
	if len(s.Returning) > 0 {
		return ctrl.Result{RequeueAfter: returnAgain}, nil
	}
	if plan.State == state.DiskInUse || unallowed(s) {
		return ctrl.Result{RequeueAfter: accessAgain}, nil
	}
	return ctrl.Result{RequeueAfter: sooner(sooner(sooner(report.LookAgain(s), leaves.Again), update.Again), awaitsSource(s))}, nil
}

// accessAgain is how often to check a disk that another holder has, in case no event says that it is free.
const accessAgain = 15 * time.Second

// addFinalizer adds the finalizer that keeps a launcher until its end is certain, also to pods that were made without it or that lost it.
func (r *Reconciler) addFinalizer(ctx context.Context, p *corev1.Pod) (bool, error) {
	if p == nil || p.DeletionTimestamp != nil || podend.Over(p) || slices.Contains(p.Finalizers, render.LauncherEnd) {
		return true, nil
	}
	next := p.DeepCopy()
	next.Finalizers = append(next.Finalizers, render.LauncherEnd)
	return false, r.Cluster.Change(ctx, p, next)
}

// MarkOutdated labels an instance whose guest runs in another image than a new one would, as after an upgrade: the guest continues
// to run until a user restarts or moves it.
func (r *Reconciler) MarkOutdated(ctx context.Context, s *observed.Instance) error {
	_, marked := s.Object.Labels[kubevirt.LabelOutdated]
	outdated := s.Launcher != nil && !podend.Over(s.Launcher) && slices.ContainsFunc(s.Launcher.Spec.Containers,
		func(c corev1.Container) bool {
			return c.Name == launcherexec.Container && c.Image != r.Read.Options.Image
		})
	if s.Object.DeletionTimestamp != nil || marked == outdated {
		return nil
	}
	marks := cluster.Marks{Finalizers: []string{Finalizer}}
	if outdated {
		marks.Labels = map[string]string{kubevirt.LabelOutdated: ""}
	}
	return r.Cluster.Mark(ctx, s.Object, marks)
}

func (r *Reconciler) act(ctx context.Context, a machine.Action, s *observed.Instance) error {
	switch a {
	case machine.StartConsumer:
		return r.Start(ctx, s, render.Consumer)
	case machine.StartLauncher:
		return r.Start(ctx, s, render.Launcher)
	case machine.StopConsumer:
		return r.Cluster.Delete(ctx, s.Consumer)
	case machine.StopLauncher:
		return r.Cluster.DeleteWithin(ctx, s.Launcher, render.GracePeriod(s.Object.Spec)) // it may have been changed since
	case machine.StopOthers:
		return r.stopOthers(ctx, s)
	case machine.Nominate:
		return r.Cluster.ApplyStatus(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Launcher.Namespace, Name: s.Launcher.Name, UID: s.Launcher.UID},
			Status:     corev1.PodStatus{NominatedNodeName: s.Consumer.Spec.NodeName}})
	case machine.NoteServers:
		return r.noteServers(ctx, s)
	case machine.TakeDisks:
		return r.Grants.Take(ctx, grant.Pod{Pod: s.Launcher, Instance: s.Object}, s.Disks)
	case machine.GiveDisks:
		return r.Read.Records.GiveBack(ctx, s.Launcher.UID, nil)
	case machine.Release:
		if err := r.recordStart(ctx, s.Object); err != nil {
			return err
		}
		return r.Cluster.Mark(ctx, s.Launcher, cluster.Marks{Annotations: GoAhead(s)})
	case machine.Forget:
		return r.Cluster.Mark(ctx, s.Object, cluster.Marks{})
	case machine.CreateDisks, machine.CreateInstance, machine.DeleteInstance, machine.AskStart, machine.TakeRequest,
		machine.StartHotConsumer, machine.StopHotConsumer, machine.StartHolder, machine.StopHolder, machine.GiveMaster,
		machine.RecordBegun, machine.RecordKept, machine.SetAlways:
	}
	return fmt.Errorf("%s is not an action on an instance", a)
}

// Start makes the consumer or the launcher of an instance.
func (r *Reconciler) Start(ctx context.Context, s *observed.Instance, p render.Payload) error {
	pod, err := s.Pods.Pod(p)
	if err != nil {
		return err
	}
	keepBeside(s, pod)
	if err := r.unreplaced(ctx, s); err != nil {
		return err
	}
	if err := r.neverRan(ctx, s.Object); err != nil {
		return err
	}
	if p == render.Launcher {
		if err := r.Grants.CopyLogins(ctx, s.Disks); err != nil {
			return err
		}
	}
	err = r.Cluster.Create(ctx, pod)
	if errors.Is(err, cluster.ErrTaken) {
		r.Cluster.Event(s.Object, corev1.EventTypeWarning, "FailedCreate", err.Error())
	}
	return err
}
