package machine

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
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/livechange"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/token"
)

// whole is a machine, its volumes and its run, read once.
type whole struct {
	vm      *kubevirt.VirtualMachine
	volumes map[string]*cdiv1.DataVolume // of its templates, by name; nil: there is none
	run     *run                         // nil: there is no instance
	now     time.Time

	claims []templated // of its claim templates
	kind   kind
	next   *kubevirt.VirtualMachineInstance // the instance to create, or to compare the present one with; nil: the present one follows the template
	change *livechange.Plan                 // the result of that comparison; nil: nothing was compared
	means  machine.Means
	why    string // it cannot be started
	busy   busy
	made   made // what is said about volumes that containers make
	// partial is which of its claims have only a part of a disk, and what to do about it; empty: none has.
	partial string
	// snapshots says which of its volumes a snapshot has.
	snapshots []kubevirt.VolumeSnapshotStatus
}

// reconcileMachine brings one machine a step further.
func (r *Reconciler) reconcileMachine(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vm, err := cluster.Get[kubevirt.VirtualMachine](ctx, r.reader, req.Namespace, req.Name)
	if err != nil || vm == nil {
		return ctrl.Result{}, err
	}
	w, err := r.observeMachine(ctx, vm)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, change := range []func(context.Context, *whole) (bool, error){r.takeVolumes, r.followTemplate} {
		if done, err := change(ctx, w); err != nil || done {
			return ctrl.Result{}, err // the change brings the machine back
		}
	}
	facts := w.facts()
	plan := machine.Run(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		if err := r.actMachine(ctx, a, w); err != nil {
			return ctrl.Result{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	update := updatePlan{}
	if w.run != nil {
		if update, err = r.planUpdate(ctx, w.run); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.reportMachine(ctx, w, plan, update); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.takeRequests(ctx, w, plan); err != nil {
		return ctrl.Result{}, err
	}
	if plan.State == state.CrashLoop {
		return ctrl.Result{RequeueAfter: max(w.nextTry().Sub(w.now), time.Second)}, nil
	}
	return ctrl.Result{RequeueAfter: w.lookAgain()}, nil
}

func (r *Reconciler) observeMachine(ctx context.Context, vm *kubevirt.VirtualMachine) (*whole, error) {
	w := &whole{vm: vm, volumes: map[string]*cdiv1.DataVolume{}, now: r.clock.Now()}
	for _, t := range vm.Spec.DataVolumeTemplates {
		v, err := cluster.Get[cdiv1.DataVolume](ctx, r.reader, vm.Namespace, t.ObjectMeta.Name)
		if err != nil {
			return nil, err
		}
		w.volumes[t.ObjectMeta.Name] = v
	}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.reader, vm.Namespace, vm.Name)
	if err != nil {
		return nil, err
	}
	if i != nil {
		if w.run, err = r.observe(ctx, i); err != nil {
			return nil, err
		}
	}
	if err := r.observePartial(ctx, w); err != nil {
		return nil, err
	}
	if err := r.observeSnapshots(ctx, w); err != nil {
		return nil, err
	}
	return w, r.observeMeans(ctx, w)
}

func (w *whole) facts() machine.RunFacts {
	f := machine.RunFacts{
		Leaving: w.vm.DeletionTimestamp != nil, Strategy: w.vm.Spec.Strategy(), Request: w.request(), Instance: w.instances(),
		Served: w.vm.Status.RunStrategy == w.vm.Spec.Strategy(), Means: w.means,
	}
	f.Disks, _ = w.worstVolume()
	f.RetryDue = !w.now.Before(w.nextTry())
	return f
}

func (w *whole) instances() machine.Instances {
	switch {
	case w.run == nil:
		return machine.NoInstance
	case !metav1.IsControlledBy(w.run.instance, w.vm):
		return machine.Stranger
	case w.run.instance.DeletionTimestamp != nil:
		return machine.Departing
	}
	if end, ok := ends[machine.Instance(w.run.facts()).State]; ok {
		return end
	}
	return machine.Living
}

// ends are the states of an instance that has ended.
var ends = map[state.MachineReason]machine.Instances{state.GuestEnded: machine.EndedWell, state.GuestFailed: machine.EndedBadly}

func (r *Reconciler) actMachine(ctx context.Context, a machine.Action, w *whole) error {
	switch a {
	case machine.CreateDisks:
		return r.createDisks(ctx, w)
	case machine.CreateInstance:
		return r.cluster.Create(ctx, w.next)
	case machine.DeleteInstance:
		return r.cluster.Delete(ctx, w.run.instance)
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
func (r *Reconciler) createDisks(ctx context.Context, w *whole) error {
	for _, t := range w.vm.Spec.DataVolumeTemplates {
		if w.volumes[t.ObjectMeta.Name] != nil {
			continue
		}
		if restoring, err := r.restoring(ctx, w); err != nil || restoring {
			return err
		}
		if c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, w.vm.Namespace, t.ObjectMeta.Name); err != nil || ownedBy(c, w.vm.UID) {
			if err != nil {
				return err
			}
			continue // it is the machine's own by now, and has been filled
		}
		v := newVolume(w.vm, t)
		w.kind.preferClass(&v.Spec)
		if err := r.cluster.Create(ctx, v); errors.Is(err, cluster.ErrNamespaceLeaving) {
			return err
		} else if err != nil {
			r.cluster.Event(w.vm, corev1.EventTypeWarning, "FailedDataVolumeCreate", fmt.Sprintf("Error creating DataVolume %s: %v", v.Name, err))
			return err
		}
		r.cluster.Event(w.vm, corev1.EventTypeNormal, "SuccessfulDataVolumeCreate", "Created DataVolume "+v.Name)
	}
	return r.createClaims(ctx, w)
}

func newVolume(vm *kubevirt.VirtualMachine, t kubevirt.DataVolumeTemplateSpec) *cdiv1.DataVolume {
	v := &cdiv1.DataVolume{ObjectMeta: *t.ObjectMeta.DeepCopy(), Spec: *t.Spec.DeepCopy()}
	v.Namespace = vm.Namespace
	v.OwnerReferences = []metav1.OwnerReference{owner(vm)}
	v.Labels = with(v.Labels, render.LabelCreatedBy, string(vm.UID))
	v.Annotations = with(v.Annotations, "cdi.kubevirt.io/allowClaimAdoption", "true")
	// Only admission says what the machine's author may clone: a proof in the template is somebody else's.
	delete(v.Annotations, token.Annotation)
	if proof := token.Proofs(vm.Annotations[token.MachineAnnotation])[v.Name]; proof != "" {
		v.Annotations[token.Annotation] = proof
	}
	if bootsEarly(vm, v.Name) {
		v.Annotations[names.BootEarly] = "true"
	}
	return v
}

func newInstance(vm *kubevirt.VirtualMachine) *kubevirt.VirtualMachineInstance {
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: *vm.Spec.Template.ObjectMeta.DeepCopy(), Spec: *vm.Spec.Template.Spec.DeepCopy()}
	i.Name, i.Namespace, i.GenerateName = vm.Name, vm.Namespace, ""
	i.OwnerReferences = []metav1.OwnerReference{owner(vm)}
	i.Spec.Canonical()
	nameClaims(vm, i.Spec.Volumes)
	noteTemplate(i, vm, volumeNames(i.Spec.Volumes))
	for n := range i.Spec.Volumes {
		i.Spec.Volumes[n].BootEarly = false // it says how the DataVolume is made
	}
	return i
}

func owner(vm *kubevirt.VirtualMachine) metav1.OwnerReference {
	return *metav1.NewControllerRef(vm, kubevirt.GroupVersion.WithKind("VirtualMachine"))
}

func with(m map[string]string, k, v string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}

// nextTry is when a failed instance may be followed by another: 10 s after the first failure, doubled each time, five
// minutes at most, as Kubernetes does it with containers.
func (w *whole) nextTry() time.Time {
	if w.run == nil {
		return time.Time{}
	}
	ended, byItself := w.run.endedAt()
	if !byItself {
		return time.Time{}
	}
	pause := 10 * time.Second
	if f := w.vm.Status.StartFailure; f != nil {
		for n := 1; n < f.ConsecutiveFailCount && pause < 5*time.Minute; n++ {
			pause *= 2
		}
	}
	return ended.Add(min(pause, 5*time.Minute))
}

func finishedAt(p *corev1.Pod) time.Time {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			return c.State.Terminated.FinishedAt.Time
		}
	}
	return p.CreationTimestamp.Time
}
