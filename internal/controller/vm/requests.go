package vm

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
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// takeRequests removes the requests that are carried out. If a request is added meanwhile, the write conflicts and is tried again
// on the new object.
func (r *Reconciler) takeRequests(ctx context.Context, w *compose.Machine, p machine.Plan) error {
	left := w.Asked()
	if slices.Contains(p.Do, machine.TakeRequest) {
		left = left[1:]
	}
	if len(left) == len(w.Object.Status.StateChangeRequests) {
		return nil
	}
	next := w.Object.DeepCopy()
	next.Status.StateChangeRequests = left
	return r.Cluster.ChangeStatus(ctx, w.Object, next)
}

// askStart leaves a start among the requests: what a machine runs again for must outlive the instance that failed.
func (r *Reconciler) askStart(ctx context.Context, w *compose.Machine) error {
	next := w.Object.DeepCopy()
	next.Status.StateChangeRequests = append(w.Asked(), kubevirt.StateChangeRequest{Action: kubevirt.StartRequest})
	return r.Cluster.ChangeStatus(ctx, w.Object, next)
}

// setAlways changes the strategy of a halted machine, in the form it has.
func (r *Reconciler) setAlways(ctx context.Context, w *compose.Machine) error {
	next := w.Object.DeepCopy()
	if next.Spec.Running != nil {
		*next.Spec.Running = true
	} else {
		next.Spec.RunStrategy = ptr.To(kubevirt.RunAlways)
	}
	return r.Cluster.Change(ctx, w.Object, next)
}

// served is the strategy to record: one that begins with a run has had it as soon as there is an instance.
func served(w *compose.Machine, p machine.Plan) kubevirt.RunStrategy {
	s := w.Object.Spec.Strategy()
	begins := s == kubevirt.RunOnce || s == kubevirt.RunRerunOnFailure
	ours := w.Instance != nil && metav1.IsControlledBy(w.Instance.Object, w.Object) || slices.Contains(p.Do, machine.CreateInstance)
	if begins && !ours {
		return w.Object.Status.RunStrategy
	}
	return s
}

// takeVolumes carries volume requests out: on the machine's template, then on its instance, and only then removes them. It returns
// whether it changed anything.
func (r *Reconciler) takeVolumes(ctx context.Context, w *compose.Machine) (bool, error) {
	requests := w.Object.Status.VolumeRequests
	if len(requests) == 0 || w.Object.DeletionTimestamp != nil {
		return false, nil
	}
	next := w.Object.DeepCopy()
	if r.apply(w.Object, &next.Spec.Template.Spec, requests); !equality.Semantic.DeepEqual(w.Object.Spec, next.Spec) {
		return true, r.Cluster.Change(ctx, w.Object, next)
	}
	if w.Instance != nil && metav1.IsControlledBy(w.Instance.Object, w.Object) && w.Instance.Object.DeletionTimestamp == nil {
		i := w.Instance.Object.DeepCopy()
		if r.apply(w.Object, &i.Spec, requests); !equality.Semantic.DeepEqual(w.Instance.Object.Spec, i.Spec) {
			return true, r.Cluster.Change(ctx, w.Instance.Object, i)
		}
	}
	next.Status.VolumeRequests = nil
	return true, r.Cluster.ChangeStatus(ctx, w.Object, next)
}

// apply carries out the requests on a spec. A request that cannot be carried out is reported on the machine and dropped.
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
			r.Cluster.Event(vm, corev1.EventTypeWarning, "FailedVolumeRequest", err.Error())
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
