package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// asked are the requests that still have something to act on: a stop is over when the instance it was meant for is gone.
func (w *whole) asked() []kubevirt.StateChangeRequest {
	var out []kubevirt.StateChangeRequest
	for _, q := range w.vm.Status.StateChangeRequests {
		stale := q.Action == kubevirt.StopRequest && (w.run == nil || q.UID != nil && *q.UID != w.run.instance.UID)
		if !stale {
			out = append(out, q)
		}
	}
	return out
}

// request is the oldest request; a stop with a start behind it is a restart.
func (w *whole) request() machine.Request {
	q := w.asked()
	switch {
	case len(q) == 0:
		return machine.NoRequest
	case q[0].Action == kubevirt.StartRequest && q[0].Paused():
		return machine.StartPausedAsked
	case q[0].Action == kubevirt.StartRequest:
		return machine.StartAsked
	case len(q) > 1 && q[1].Action == kubevirt.StartRequest:
		return machine.RestartAsked
	}
	return machine.StopAsked
}

// takeRequests removes the requests that are carried out. If a request is added meanwhile, the write conflicts and is tried again
// on the new object.
func (r *Reconciler) takeRequests(ctx context.Context, w *whole, p machine.Plan) error {
	left := w.asked()
	if slices.Contains(p.Do, machine.TakeRequest) {
		left = left[1:]
	}
	if len(left) == len(w.vm.Status.StateChangeRequests) {
		return nil
	}
	next := w.vm.DeepCopy()
	next.Status.StateChangeRequests = left
	return r.cluster.ChangeStatus(ctx, w.vm, next)
}

// askStart leaves a start among the requests: what a machine runs again for must outlive the instance that failed.
func (r *Reconciler) askStart(ctx context.Context, w *whole) error {
	next := w.vm.DeepCopy()
	next.Status.StateChangeRequests = append(w.asked(), kubevirt.StateChangeRequest{Action: kubevirt.StartRequest})
	return r.cluster.ChangeStatus(ctx, w.vm, next)
}

// setAlways changes the strategy of a halted machine, in the form it has.
func (r *Reconciler) setAlways(ctx context.Context, w *whole) error {
	next := w.vm.DeepCopy()
	if next.Spec.Running != nil {
		*next.Spec.Running = true
	} else {
		next.Spec.RunStrategy = ptr.To(kubevirt.RunAlways)
	}
	return r.cluster.Change(ctx, w.vm, next)
}

// served is the strategy to record: one that begins with a run has had it as soon as there is an instance.
func (w *whole) served(p machine.Plan) kubevirt.RunStrategy {
	s := w.vm.Spec.Strategy()
	begins := s == kubevirt.RunOnce || s == kubevirt.RunRerunOnFailure
	ours := w.run != nil && metav1.IsControlledBy(w.run.instance, w.vm) || slices.Contains(p.Do, machine.CreateInstance)
	if begins && !ours {
		return w.vm.Status.RunStrategy
	}
	return s
}

// takeVolumes carries volume requests out: on the machine's template, then on its instance, and only then are they taken
// away. It says whether it changed anything.
func (r *Reconciler) takeVolumes(ctx context.Context, w *whole) (bool, error) {
	requests := w.vm.Status.VolumeRequests
	if len(requests) == 0 || w.vm.DeletionTimestamp != nil {
		return false, nil
	}
	next := w.vm.DeepCopy()
	if r.apply(w.vm, &next.Spec.Template.Spec, requests); !equality.Semantic.DeepEqual(w.vm.Spec, next.Spec) {
		return true, r.cluster.Change(ctx, w.vm, next)
	}
	if w.run != nil && metav1.IsControlledBy(w.run.instance, w.vm) && w.run.instance.DeletionTimestamp == nil {
		i := w.run.instance.DeepCopy()
		if r.apply(w.vm, &i.Spec, requests); !equality.Semantic.DeepEqual(w.run.instance.Spec, i.Spec) {
			return true, r.cluster.Change(ctx, w.run.instance, i)
		}
	}
	next.Status.VolumeRequests = nil
	return true, r.cluster.ChangeStatus(ctx, w.vm, next)
}

// apply does what is asked to a spec. What cannot be done is said on the machine and left out.
func (r *Reconciler) apply(vm *kubevirt.VirtualMachine, spec *kubevirt.VirtualMachineInstanceSpec, requests []kubevirt.VolumeRequest) {
	for _, q := range requests {
		var err error
		switch {
		case q.AddVolumeOptions != nil:
			err = addVolume(spec, *q.AddVolumeOptions)
		case q.RemoveVolumeOptions != nil:
			err = removeVolume(spec, q.RemoveVolumeOptions.Name)
		}
		if err != nil {
			r.cluster.Event(vm, corev1.EventTypeWarning, "FailedVolumeRequest", err.Error())
		}
	}
}

func addVolume(spec *kubevirt.VirtualMachineInstanceSpec, o kubevirt.AddVolumeOptions) error {
	if o.VolumeSource.Count() != 1 {
		return fmt.Errorf("volume %s: it has no source, or more than one", o.Name)
	}
	v := o.Volume()
	if at := slices.IndexFunc(spec.Volumes, func(x kubevirt.Volume) bool { return x.Name == o.Name }); at >= 0 {
		if equality.Semantic.DeepEqual(spec.Volumes[at], v) {
			return nil // it was added already
		}
		return fmt.Errorf("volume %s: the machine has another of that name", o.Name)
	}
	disk := kubevirt.Disk{}
	if o.Disk != nil {
		disk = *o.Disk.DeepCopy()
	}
	disk.Name = o.Name
	spec.Volumes = append(spec.Volumes, v)
	disks := spec.Domain.Devices.Disks
	if !slices.ContainsFunc(disks, func(d kubevirt.Disk) bool { return d.Name == o.Name }) {
		spec.Domain.Devices.Disks = append(disks, disk)
	}
	return nil
}

var errNotHotpluggable = errors.New("it was not added to the running machine, so it cannot be removed from it; stop the machine and change its template")

func removeVolume(spec *kubevirt.VirtualMachineInstanceSpec, name string) error {
	at := slices.IndexFunc(spec.Volumes, func(x kubevirt.Volume) bool { return x.Name == name })
	if at < 0 {
		return nil // it was removed already
	}
	if !spec.Volumes[at].CanBeRemoved() {
		return fmt.Errorf("volume %s: %w", name, errNotHotpluggable)
	}
	spec.Volumes = slices.Delete(spec.Volumes, at, at+1)
	spec.Domain.Devices.Disks = slices.DeleteFunc(spec.Domain.Devices.Disks, func(d kubevirt.Disk) bool { return d.Name == name })
	return nil
}
