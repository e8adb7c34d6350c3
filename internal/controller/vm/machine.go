package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/volumeupdate"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/token"
)

// Reconcile brings one machine a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vm, err := cluster.Get[kubevirt.VirtualMachine](ctx, r.Read.Cached, req.Namespace, req.Name)
	if err != nil || vm == nil {
		return ctrl.Result{}, err
	}
	w, err := r.Machines.Machine(ctx, vm)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, change := range []func(context.Context, *compose.Machine) (bool, error){r.takeVolumes, r.followTemplate} {
		if done, err := change(ctx, w); err != nil || done {
			return ctrl.Result{}, err // the change brings the machine back
		}
	}
	facts := facts(w)
	plan := machine.Run(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		if err := r.act(ctx, a, w); err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	update := volumeupdate.Plan{}
	if w.Instance != nil {
		if update, err = r.Updates.Plan(ctx, w.Instance); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.report(ctx, w, plan, update); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.takeRequests(ctx, w, plan); err != nil {
		return ctrl.Result{}, err
	}
	if plan.State == state.CrashLoop {
		return ctrl.Result{RequeueAfter: max(nextTry(w).Sub(w.Now), time.Second)}, nil
	}
	return ctrl.Result{RequeueAfter: lookAgain(w)}, nil
}

func facts(w *compose.Machine) machine.RunFacts {
	f := machine.RunFacts{
		Leaving: w.Object.DeletionTimestamp != nil, Strategy: w.Object.Spec.Strategy(), Request: w.Request(), Instance: w.Instances(),
		Served: w.Object.Status.RunStrategy == w.Object.Spec.Strategy(), Means: w.Means,
	}
	f.Disks, _ = w.WorstVolume()
	f.RetryDue = !w.Now.Before(nextTry(w))
	return f
}

func (r *Reconciler) act(ctx context.Context, a machine.Action, w *compose.Machine) error {
	switch a {
	case machine.CreateDisks:
		return r.createDisks(ctx, w)
	case machine.CreateInstance:
		return r.Cluster.Create(ctx, w.Next)
	case machine.DeleteInstance:
		return r.Cluster.Delete(ctx, w.Instance.Object)
	case machine.SetAlways:
		return r.setAlways(ctx, w)
	case machine.AskStart:
		return r.askStart(ctx, w)
	case machine.TakeRequest:
		return nil // takeRequests does, after everything else: until then a crash repeats what was asked
	case machine.StartConsumer, machine.StopConsumer, machine.StartLauncher, machine.StopLauncher, machine.StopOthers, machine.Nominate,
		machine.Release, machine.Forget, machine.NoteServers, machine.TakeDisks, machine.GiveDisks, machine.GiveMaster, machine.RecordBegun, machine.RecordKept, machine.StartHotConsumer, machine.StopHotConsumer, machine.StartHolder, machine.StopHolder:
	}
	return fmt.Errorf("%s is not an action on a machine", a)
}

// createDisks makes the volumes of the templates that are not there.
func (r *Reconciler) createDisks(ctx context.Context, w *compose.Machine) error {
	for _, t := range w.Object.Spec.DataVolumeTemplates {
		if w.Volumes[t.ObjectMeta.Name] != nil {
			continue
		}
		if restoring, err := r.Machines.Restoring(ctx, w); err != nil || restoring {
			return err
		}
		if c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Read.Cached, w.Object.Namespace, t.ObjectMeta.Name); err != nil || diskstate.OwnedBy(c, w.Object.UID) {
			if err != nil {
				return err
			}
			continue // it is the machine's own by now, and has been filled
		}
		v := NewVolume(w.Object, t)
		w.Kind.PreferClass(&v.Spec)
		if err := r.Cluster.Create(ctx, v); errors.Is(err, cluster.ErrNamespaceLeaving) {
			return err
		} else if err != nil {
			r.Cluster.Event(w.Object, corev1.EventTypeWarning, "FailedDataVolumeCreate", fmt.Sprintf("Error creating DataVolume %s: %v", v.Name, err))
			return err
		}
		r.Cluster.Event(w.Object, corev1.EventTypeNormal, "SuccessfulDataVolumeCreate", "Created DataVolume "+v.Name)
	}
	return r.createClaims(ctx, w)
}

// NewVolume returns the DataVolume of a template.
func NewVolume(vm *kubevirt.VirtualMachine, t kubevirt.DataVolumeTemplateSpec) *cdiv1.DataVolume {
	v := &cdiv1.DataVolume{ObjectMeta: *t.ObjectMeta.DeepCopy(), Spec: *t.Spec.DeepCopy()}
	v.Namespace = vm.Namespace
	v.OwnerReferences = []metav1.OwnerReference{observed.Owner(vm)}
	v.Labels = observed.With(v.Labels, render.LabelCreatedBy, string(vm.UID))
	v.Annotations = observed.With(v.Annotations, "cdi.kubevirt.io/allowClaimAdoption", "true")
	// Only admission says what the machine's author may clone: a proof in the template may be copied from another user.
	delete(v.Annotations, token.Annotation)
	if proof := token.Proofs(vm.Annotations[token.MachineAnnotation])[v.Name]; proof != "" {
		v.Annotations[token.Annotation] = proof
	}
	if bootsEarly(vm, v.Name) {
		v.Annotations[names.BootEarly] = "true"
	}
	return v
}

// nextTry returns when a failed instance may be followed by another: 10 s after the first failure, doubled each time, five minutes
// at most, as Kubernetes does with containers.
func nextTry(w *compose.Machine) time.Time {
	if w.Instance == nil {
		return time.Time{}
	}
	ended, byItself := w.Instance.EndedAt()
	if !byItself {
		return time.Time{}
	}
	pause := 10 * time.Second
	if f := w.Object.Status.StartFailure; f != nil {
		for n := 1; n < f.ConsecutiveFailCount && pause < 5*time.Minute; n++ {
			pause *= 2
		}
	}
	return ended.Add(min(pause, 5*time.Minute))
}
