package compose

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/livechange"
	"github.com/berth-vm/berth/internal/state"
)

// Machine is a machine, its volumes and its instance, read once.
type Machine struct {
	Object   *kubevirt.VirtualMachine
	Volumes  map[string]*cdiv1.DataVolume // of its templates, by name; nil: there is none
	Instance *observed.Instance           // nil: there is no instance
	Now      time.Time

	Claims []ClaimTemplate // of its claim templates
	Kind   Kind
	Next   *kubevirt.VirtualMachineInstance // the instance to create, or to compare the present one with; nil: the present one follows the template
	Change *livechange.Plan                 // the result of that comparison; nil: nothing was compared
	Means  machine.Means
	Why    string // it cannot be started
	Busy   Busy
	Made   Made // what is said about volumes that containers make
	// partial says which of its claims have only a part of a disk, and what to do about it; empty if none has.
	Partial string
	// snapshots says which of its volumes a snapshot has.
	Snapshots []kubevirt.VolumeSnapshotStatus
}

// Machine reads what one machine depends on.
func (r *Reader) Machine(ctx context.Context, vm *kubevirt.VirtualMachine) (*Machine, error) {
	w := &Machine{Object: vm, Volumes: map[string]*cdiv1.DataVolume{}, Now: r.Clock.Now()}
	for _, t := range vm.Spec.DataVolumeTemplates {
		v, err := cluster.Get[cdiv1.DataVolume](ctx, r.Read.Cached, vm.Namespace, t.ObjectMeta.Name)
		if err != nil {
			return nil, err
		}
		w.Volumes[t.ObjectMeta.Name] = v
	}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.Read.Cached, vm.Namespace, vm.Name)
	if err != nil {
		return nil, err
	}
	if i != nil {
		if w.Instance, err = r.Read.Instance(ctx, i); err != nil {
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

// Instances returns the state of the machine's instance.
func (w *Machine) Instances() machine.Instances {
	switch {
	case w.Instance == nil:
		return machine.NoInstance
	case !metav1.IsControlledBy(w.Instance.Object, w.Object):
		return machine.Stranger
	case w.Instance.Object.DeletionTimestamp != nil:
		return machine.Departing
	}
	if end, ok := ends[machine.Instance(w.Instance.Facts()).State]; ok {
		return end
	}
	return machine.Living
}

// ends are the states of an instance that has ended.
var ends = map[state.MachineReason]machine.Instances{state.GuestEnded: machine.EndedWell, state.GuestFailed: machine.EndedBadly}
