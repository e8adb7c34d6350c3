package drill

import (
	"context"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/machine"
)

// sight is what was seen of a copy.
type sight struct {
	facts facts
	waits string // what the copy says about itself
}

// observe reads the copy once. A console is followed until following ends.
func (w *watcher) observe(ctx, following context.Context) (sight, error) {
	vm, err := kube.Machines.Get(ctx, w.c, w.Name)
	if err != nil {
		return sight{}, err
	}
	if vm == nil || vm.UID != w.UID || vm.DeletionTimestamp != nil {
		return sight{facts: facts{Copy: Removed}}, nil
	}
	s := sight{waits: machine.Said(string(vm.Status.PrintableStatus), vm.Status.Conditions)}
	if err := w.disks(ctx, vm, &s); err != nil {
		return s, err
	}
	i, err := kube.Instances.Get(ctx, w.c, w.Name)
	if err != nil || i == nil || !metav1.IsControlledBy(i, vm) {
		return s, err
	}
	return s, w.instance(ctx, following, i, &s)
}

// disks reads how full the disks are.
func (w *watcher) disks(ctx context.Context, vm *kubevirt.VirtualMachine, s *sight) error {
	s.facts.Disks = Full
	for _, name := range w.Disks {
		d, err := kube.DataVolumes.Get(ctx, w.c, name)
		switch {
		case err != nil:
			return err
		case d == nil:
			s.facts.Disks = Filling
		case !metav1.IsControlledBy(d, vm):
			return fmt.Errorf("DataVolume %s: %w", name, errForeign)
		case d.Status.Phase == cdiv1.Failed:
			s.facts.Disks, s.waits = Bad, fmt.Sprintf("DataVolume %s: %s", name, why(d))
			return nil
		case d.Status.Phase != cdiv1.Succeeded:
			s.facts.Disks = Filling
		}
	}
	return nil
}

// instance reads how far the guest is, and looks for the sign that it is up.
func (w *watcher) instance(ctx, following context.Context, i *kubevirt.VirtualMachineInstance, s *sight) error {
	if i.Status.Phase != "" && s.facts.Disks != Bad {
		s.waits = machine.Said(string(i.Status.Phase), i.Status.Conditions)
	}
	switch i.Status.Phase {
	case kubevirt.PhaseRunning:
		s.facts.Copy = Running
	case kubevirt.PhaseFailed, kubevirt.PhaseSucceeded:
		s.facts.Copy = Ended
	case kubevirt.PhasePending, kubevirt.PhaseScheduling, kubevirt.PhaseScheduled, kubevirt.PhaseUnknown:
		return nil
	default: // it has none yet
		return nil
	}
	if err := w.readConsole(ctx, following, i); err != nil {
		return err
	}
	s.facts.Up = w.signOf(ctx, i, s)
	return nil
}

// signOf looks for the sign that the guest is up.
func (w *watcher) signOf(ctx context.Context, i *kubevirt.VirtualMachineInstance, s *sight) bool {
	switch w.Sign {
	case Console:
		found, _, err := w.console.state()
		if err != nil {
			s.waits = err.Error()
		}
		return found
	case Probe:
		return s.facts.Copy == Running && slices.ContainsFunc(i.Status.Conditions, func(c kubevirt.Condition) bool {
			return c.Type == "Ready" && c.Status == corev1.ConditionTrue
		})
	case Agent:
		if s.facts.Copy != Running {
			return false
		}
		brief, cancel := context.WithTimeout(ctx, 10*look)
		defer cancel()
		err := w.agent(brief, i.Name)
		if err != nil {
			s.waits = "its guest agent does not answer: " + err.Error()
		}
		return err == nil
	}
	return false
}

// readConsole begins to read the console of the instance's launcher.
func (w *watcher) readConsole(ctx, following context.Context, i *kubevirt.VirtualMachineInstance) error {
	all, err := launcherpod.Of(ctx, kube.Pods{Client: w.c}, i)
	if err != nil {
		return err
	}
	p := launcherpod.Present(all)
	if p == nil || p.UID == w.reading {
		return nil
	}
	if w.reading == "" {
		w.reading = p.UID
		go w.console.follow(following, func(ctx context.Context) (io.ReadCloser, error) { return w.logs(ctx, p.Name) })
	}
	return nil
}

// why is what a DataVolume says about itself.
func why(d *cdiv1.DataVolume) string {
	for _, c := range d.Status.Conditions {
		if c.Type == cdiv1.DataVolumeReady && c.Message != "" {
			return c.Message
		}
	}
	return string(d.Status.Phase)
}
