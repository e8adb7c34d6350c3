// Package containervolume has containers make volumes for machines: it runs the container that a machine's volume names, asks it for the volume,
// writes down what it answered, and has it deleted when the machine or the volume goes. internal/decide/containervolume decides; this package
// observes, carries out and reports. What is known of a volume is in its ContainerVolume, which only we write: it is there before the
// container is first asked and goes when the container has said that nothing is left.
//
// It starts no machine: internal/controller/compose reads the records and waits for them.
package containervolume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	contract "github.com/berth-vm/berth/internal/containervolume"
	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/decide/containervolume"
	"github.com/berth-vm/berth/internal/reach"
	"github.com/berth-vm/berth/internal/render"
)

// Finalizer keeps a machine, and the record of a volume, until what a container made for it is deleted.
const Finalizer = "berth.dev/container-volumes"

// AnnAbandon on a machine names the volumes, separated by commas, whose contents may stay where their container put them.
const AnnAbandon = "berth.dev/abandon-volumes"

// Keys makes certificates; *installkeys.Maker is one.
type Keys interface {
	Trusted(ctx context.Context) (string, error)
	Due(until time.Time) bool
	Serving(ctx context.Context, name string) (files map[string][]byte, trusted string, until time.Time, err error)
}

// asker asks a container. It does not wait: an answer that is not there yet is probe.ErrNoAnswerYet.
type asker interface {
	Make(ctx context.Context, v *volume) (*kubevirt.MadeSource, error)
	Delete(ctx context.Context, v *volume) error
}

// Reconciler reconciles the volumes of machines that containers make.
type Reconciler struct {
	reader  client.Reader // cached
	live    client.Reader // the server itself, before something is deleted
	cluster *cluster.Writer
	clock   clock.PassiveClock
	keys    Keys
	reach   reach.Rules
	ask     asker
}

// Delays until the next check, if no event comes before.
const (
	soon    = time.Second      // an answer is on its way
	pause   = 10 * time.Second // after an answer that was none
	forKeys = time.Hour        // certificates are replaced long before they end
)

// Reconcile brings the volumes of one machine a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vm, err := cluster.Get[kubevirt.VirtualMachine](ctx, r.reader, req.Namespace, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	volumes, err := r.observe(ctx, vm, req)
	if err != nil {
		return ctrl.Result{}, err
	}
	again, left := time.Duration(0), false
	var failed []error
	for _, v := range volumes {
		after, err := r.step(ctx, v)
		failed = append(failed, err)
		if after > 0 && (again == 0 || after < again) {
			again = after
		}
		left = left || v.record != nil || v.want != nil
	}
	if err := errors.Join(failed...); err != nil {
		return ctrl.Result{}, err
	}
	if vm != nil && !left && slices.Contains(vm.Finalizers, Finalizer) {
		return ctrl.Result{}, r.release(ctx, vm)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// release lets the machine go, or lets it be one like others again: no volume of a container is left.
func (r *Reconciler) release(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	var records accessv1.ContainerVolumeList // the cache may lack a new one
	if err := r.live.List(ctx, &records, client.InNamespace(vm.Namespace), client.MatchingLabels{render.LabelMaker: vm.Name}); err != nil {
		return fmt.Errorf("list the volumes of machine %s: %w", vm.Name, err)
	}
	if slices.ContainsFunc(records.Items, func(c accessv1.ContainerVolume) bool { return c.Spec.MachineUID == vm.UID }) {
		return nil // its own change brings the machine back
	}
	next := vm.DeepCopy()
	next.Finalizers = without(next.Finalizers)
	return gone(r.cluster.Change(ctx, vm, next))
}

// gone is err, unless it only says that what was to be changed does not exist any more.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// step takes the next step for a volume and returns when to look again.
func (r *Reconciler) step(ctx context.Context, v *volume) (time.Duration, error) {
	facts := v.facts()
	plan := containervolume.Decide(facts)
	log.FromContext(ctx).V(1).Info("decided", "volume", v.name, "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	said := statement{reason: plan.State, detail: v.waits()}
	for _, a := range plan.Do {
		trouble, err := r.act(ctx, a, v)
		if errors.Is(err, cluster.ErrNamespaceLeaving) && v.wish != containervolume.Wanted {
			return 0, r.leaveBehind(ctx, v)
		}
		if err != nil {
			return 0, fmt.Errorf("volume %s: %s: %w", v.name, a, err)
		}
		if trouble != nil {
			said = said.with(v, trouble)
			break
		}
	}
	if v.forgotten || v.record == nil {
		return 0, nil
	}
	return said.again(), r.report(ctx, v, said)
}

// act carries out one action. The first result is a problem that the user is told about; an error is retried.
func (r *Reconciler) act(ctx context.Context, a containervolume.Action, v *volume) (trouble, err error) {
	switch a {
	case containervolume.KeepMachine:
		return nil, r.keep(ctx, v)
	case containervolume.Write:
		return nil, r.write(ctx, v)
	case containervolume.MakeKeys:
		return nil, r.makeKeys(ctx, v)
	case containervolume.StartPod:
		return r.startPod(ctx, v)
	case containervolume.StopPod:
		return nil, r.cluster.DeleteWithin(ctx, v.pod, 1) // it has nothing left to answer
	case containervolume.NoteAsking:
		return nil, r.note(ctx, v, func(s *accessv1.ContainerVolumeSpec) { s.Asked = true })
	case containervolume.ForgetAnswer:
		return nil, r.note(ctx, v, func(s *accessv1.ContainerVolumeSpec) { s.Source, s.AnsweredBy = nil, "" })
	case containervolume.AskToMake:
		return r.askToMake(ctx, v)
	case containervolume.StopInstance:
		return nil, r.cluster.Delete(ctx, v.instance)
	case containervolume.AskToDelete:
		return r.askToDelete(ctx, v)
	case containervolume.Forget:
		return nil, r.forget(ctx, v)
	}
	return nil, fmt.Errorf("%s is no action", a)
}

// keep puts our finalizer on the machine before anything is made for it.
func (r *Reconciler) keep(ctx context.Context, v *volume) error {
	if slices.Contains(v.vm.Finalizers, Finalizer) {
		return nil
	}
	next := v.vm.DeepCopy()
	next.Finalizers = append(next.Finalizers, Finalizer)
	if err := r.cluster.Change(ctx, v.vm, next); err != nil {
		return err
	}
	*v.vm = *next
	return nil
}

// write creates or updates the record for the container that the machine names now.
func (r *Reconciler) write(ctx context.Context, v *volume) error {
	if v.record != nil {
		return r.note(ctx, v, func(s *accessv1.ContainerVolumeSpec) {
			s.Container, s.Source, s.AnsweredBy = *v.want.DeepCopy(), nil, ""
		})
	}
	return r.cluster.Create(ctx, &accessv1.ContainerVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: render.MakerName(v.vm.Name, v.vm.UID, v.name), Namespace: v.vm.Namespace, Finalizers: []string{Finalizer},
			Labels:          map[string]string{render.LabelMaker: v.vm.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(v.vm, kubevirt.GroupVersion.WithKind("VirtualMachine"))},
		},
		Spec: accessv1.ContainerVolumeSpec{Machine: v.vm.Name, MachineUID: v.vm.UID, Volume: v.name, Container: *v.want.DeepCopy()},
	})
}

// note changes the record. It returns a conflict if the record was written since it was read.
func (r *Reconciler) note(ctx context.Context, v *volume, change func(*accessv1.ContainerVolumeSpec)) error {
	next := v.record.DeepCopy()
	change(&next.Spec)
	if err := r.cluster.Update(ctx, next); err != nil {
		return err
	}
	v.record = next
	return nil
}

// makeKeys writes the Secret first: that there are keys is recorded when there are.
func (r *Reconciler) makeKeys(ctx context.Context, v *volume) error {
	files, trusted, until, err := r.keys.Serving(ctx, render.MakerServes(v.record.UID))
	if err != nil {
		return err
	}
	if err := r.cluster.Replace(ctx, render.MakerKeys(v.record, files)); err != nil {
		return err
	}
	return r.note(ctx, v, func(s *accessv1.ContainerVolumeSpec) {
		s.Keys = &accessv1.ContainerKeys{Trusted: trusted, Until: metav1.NewTime(until)}
	})
}

// leaveBehind abandons the volume that a container made. Nothing starts any more in a namespace that is being deleted, so the
// container cannot delete its volume, and the namespace would wait for ever.
func (r *Reconciler) leaveBehind(ctx context.Context, v *volume) error {
	log.FromContext(ctx).Info("the namespace is being deleted before a container has deleted what it made: it is left where it is",
		"namespace", v.record.Namespace, "machine", v.record.Spec.Machine, "volume", v.name, "source", v.record.Spec.Source)
	return r.note(ctx, v, func(s *accessv1.ContainerVolumeSpec) { s.Deleted = true })
}

// startPod runs the container.
func (r *Reconciler) startPod(ctx context.Context, v *volume) (trouble, err error) {
	err = r.cluster.Create(ctx, render.Maker{Record: v.record, Grace: v.grace()}.Pod())
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || errors.Is(err, cluster.ErrTaken) {
		return err, nil // a quota, the namespace's pod security standard, a pod in the way: a person has to act
	}
	return nil, err
}

// askToMake writes down what the container answered, if the machine may have it.
func (r *Reconciler) askToMake(ctx context.Context, v *volume) (trouble, err error) {
	source, err := r.ask.Make(ctx, v)
	if err == nil {
		err = contract.Reach(source, r.reach)
	}
	if err == nil {
		err = r.judge(ctx, v, source)
		if err != nil && !errors.Is(err, contract.ErrRefused) {
			return nil, err
		}
	}
	if err != nil {
		return err, nil
	}
	err = r.note(ctx, v, func(s *accessv1.ContainerVolumeSpec) { s.Source, s.AnsweredBy = source, v.pod.UID })
	if apierrors.IsInvalid(err) { // of a disk's source the schema says more than of a volume's
		return fmt.Errorf("%w: %w", contract.ErrRefused, err), nil
	}
	return nil, err
}

func (r *Reconciler) askToDelete(ctx context.Context, v *volume) (trouble, err error) {
	if err := r.ask.Delete(ctx, v); err != nil {
		return err, nil
	}
	return nil, r.note(ctx, v, func(s *accessv1.ContainerVolumeSpec) { s.Deleted, s.Source, s.AnsweredBy = true, nil, "" })
}

// judge validates the answer as if the machine's author had written it: with a dry run at the API server.
func (r *Reconciler) judge(ctx context.Context, v *volume, source *kubevirt.MadeSource) error {
	next := v.vm.DeepCopy()
	next.Spec.Template.Spec.Canonical()
	next.Spec.Template.Spec.Made(v.name, source)
	err := r.cluster.Try(ctx, next)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		return fmt.Errorf("%w: %w", contract.ErrRefused, err)
	}
	return err
}

// forget removes the keys and the record, which is not any more what it was if the container has been asked meanwhile.
func (r *Reconciler) forget(ctx context.Context, v *volume) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v.record.Namespace, Name: v.record.Name}, Type: corev1.SecretTypeTLS}
	if v.record.Spec.Keys != nil {
		if err := r.cluster.Delete(ctx, secret); err != nil {
			return err
		}
	}
	v.forgotten = true
	if v.record.DeletionTimestamp == nil {
		return r.cluster.DeleteUnchanged(ctx, v.record) // the change brings it back
	}
	next := v.record.DeepCopy()
	next.Finalizers = without(next.Finalizers)
	return gone(r.cluster.Change(ctx, v.record, next))
}

// without are finalizers without ours.
func without(finalizers []string) []string {
	return slices.DeleteFunc(finalizers, func(f string) bool { return f == Finalizer })
}

var _ asker = (*podAsker)(nil)

// pending reports whether the container has not answered yet.
func pending(err error) bool {
	return errors.Is(err, probe.ErrNoAnswerYet) || errors.Is(err, contract.ErrNotYet)
}
