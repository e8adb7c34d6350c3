package aggregated

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Change is the result of a request: new values of a few fields. A nil object stays as it is.
type Change struct {
	Machine  *kubevirt.VirtualMachine
	Instance *kubevirt.VirtualMachineInstance

	Strategy *kubevirt.RunStrategy         // of the machine's spec, whichever of its two forms it has
	Requests []kubevirt.StateChangeRequest // all of the machine's status
	Volume   *kubevirt.VolumeRequest       // to be added to the machine's status
	Grace    *int64                        // of the instance's spec
	Disks    []kubevirt.Disk               // all of the instance's spec
	Volumes  []kubevirt.Volume             // all of the instance's spec
	Paused   string                        // the instance's kubevirt.AnnPaused
	Stays    string                        // the instance's kubevirt.AnnStays

	Migration *kubevirt.VirtualMachineInstanceMigration // to be made
}

var (
	machines  = schema.GroupResource{Group: kubevirt.GroupVersion.Group, Resource: "virtualmachines"}
	instances = schema.GroupResource{Group: kubevirt.GroupVersion.Group, Resource: "virtualmachineinstances"}
)

func conflict(m *kubevirt.VirtualMachine, format string, args ...any) error {
	return apierrors.NewConflict(machines, m.Name, fmt.Errorf(format, args...))
}

// runs reports whether there is a guest that has not ended.
func runs(i *kubevirt.VirtualMachineInstance) bool {
	return i != nil && i.DeletionTimestamp == nil && i.Status.Phase != kubevirt.PhaseSucceeded && i.Status.Phase != kubevirt.PhaseFailed
}

// start returns the change that starts a machine, or has it start paused. Its words are the ones clients know.
func start(m *kubevirt.VirtualMachine, i *kubevirt.VirtualMachineInstance, paused bool) (Change, error) {
	if runs(i) {
		return Change{}, conflict(m, "VM is already running")
	}
	request := kubevirt.StateChangeRequest{Action: kubevirt.StartRequest}
	if paused {
		if why := launcherapi.Pausable(m.Spec.Template.Spec); why != "" {
			return Change{}, apierrors.NewForbidden(machines, m.Name, errors.New(why))
		}
		request.Data = map[string]string{kubevirt.DataPaused: kubevirt.DataTrue}
	}
	switch s := m.Spec.Strategy(); s {
	case kubevirt.RunHalted:
		if paused { // the controller changes the strategy when it has read the request: a strategy cannot say how to start
			return Change{Machine: m, Requests: []kubevirt.StateChangeRequest{request}}, nil
		}
		always := kubevirt.RunAlways
		return Change{Machine: m, Strategy: &always}, nil
	case kubevirt.RunManual, kubevirt.RunRerunOnFailure, kubevirt.RunOnce:
		return Change{Machine: m, Requests: []kubevirt.StateChangeRequest{request}}, nil
	case kubevirt.RunAlways:
		return Change{}, conflict(m, "%s does not support manual start requests", s)
	default:
		return Change{}, conflict(m, "run strategy %q is not known", s)
	}
}

// stop returns the change that stops a machine.
func stop(m *kubevirt.VirtualMachine, i *kubevirt.VirtualMachineInstance, grace *int64) (Change, error) {
	c := Change{Machine: m, Instance: i, Grace: grace}
	switch s := m.Spec.Strategy(); s {
	case kubevirt.RunAlways:
		halted := kubevirt.RunHalted
		c.Strategy = &halted
	case kubevirt.RunManual, kubevirt.RunRerunOnFailure, kubevirt.RunOnce:
		if !runs(i) {
			return Change{}, conflict(m, "VM is not running")
		}
		c.Requests = []kubevirt.StateChangeRequest{{Action: kubevirt.StopRequest, UID: &i.UID}}
	case kubevirt.RunHalted:
		if !runs(i) {
			return Change{}, conflict(m, "VM is not running")
		}
		if grace == nil {
			return Change{}, conflict(m, "VM is stopping already") // it may still be given less time
		}
	default:
		return Change{}, conflict(m, "run strategy %q is not known", s)
	}
	if !runs(i) {
		c.Instance, c.Grace = nil, nil
	}
	return c, nil
}

// restart returns the change that stops a machine and starts it again.
func restart(m *kubevirt.VirtualMachine, i *kubevirt.VirtualMachineInstance, grace *int64) (Change, error) {
	if s := m.Spec.Strategy(); s == kubevirt.RunHalted || s == kubevirt.RunOnce {
		return Change{}, conflict(m, "%s does not support manual restart requests", s)
	}
	if !runs(i) {
		return Change{}, conflict(m, "VM is not running")
	}
	return Change{Machine: m, Instance: i, Grace: grace, Requests: []kubevirt.StateChangeRequest{
		{Action: kubevirt.StopRequest, UID: &i.UID}, {Action: kubevirt.StartRequest},
	}}, nil
}

// volumeRequest returns what is wrong with a request for a volume.
func volumeRequest(r kubevirt.VolumeRequest) error {
	wrong := ""
	switch add, remove := r.AddVolumeOptions, r.RemoveVolumeOptions; {
	case add != nil && add.Name == "", remove != nil && remove.Name == "":
		wrong = "requires name to be set"
	case add != nil && add.Disk == nil:
		wrong = "requires disk to not be nil"
	case add != nil && add.VolumeSource.Count() == 0:
		wrong = "requires volumeSource to be a dataVolume, a persistentVolumeClaim or a network disk"
	case add != nil && add.VolumeSource.Count() > 1:
		wrong = "takes one volumeSource, not two"
	}
	switch {
	case wrong == "":
		return nil
	case r.AddVolumeOptions != nil:
		return apierrors.NewBadRequest("AddVolumeOptions " + wrong)
	}
	return apierrors.NewBadRequest("RemoveVolumeOptions " + wrong)
}

// nameOf returns the volume a request is about.
func nameOf(r kubevirt.VolumeRequest) string {
	if r.AddVolumeOptions != nil {
		return r.AddVolumeOptions.Name
	}
	return r.RemoveVolumeOptions.Name
}

// refused returns why the volumes of a machine cannot be changed so; empty: they can. The words are the ones clients know.
func refused(volumes []kubevirt.Volume, r kubevirt.VolumeRequest) string {
	at := slices.IndexFunc(volumes, func(v kubevirt.Volume) bool { return v.Name == nameOf(r) })
	if r.RemoveVolumeOptions != nil {
		switch {
		case at < 0:
			return fmt.Sprintf("Unable to remove volume [%s] because it does not exist", nameOf(r))
		case !volumes[at].CanBeRemoved():
			return fmt.Sprintf("Unable to remove volume [%s] because it is not hotpluggable", nameOf(r))
		}
		return ""
	}
	if at >= 0 {
		return fmt.Sprintf("Unable to add volume [%s] because volume with that name already exists", nameOf(r))
	}
	added := r.AddVolumeOptions.Volume()
	source := claimName(added)
	if source != "" && slices.ContainsFunc(volumes, func(v kubevirt.Volume) bool { return claimName(v) == source }) {
		return fmt.Sprintf("Unable to add volume source [%s] because it already exists", source)
	}
	return ""
}

// claimName returns the claim that a volume's disk is in; empty: it is in none.
func claimName(v kubevirt.Volume) string {
	switch {
	case v.DataVolume != nil:
		return v.DataVolume.Name
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.Claim()
	}
	return ""
}

// claimOf returns the claim that a machine's volume names: it may name one of its templates.
func claimOf(m *kubevirt.VirtualMachine, name string) string {
	for _, t := range m.Spec.VolumeClaimTemplates {
		if t.ObjectMeta.Name == name {
			return kubevirt.ClaimName(m.Name, name)
		}
	}
	return name
}

// changeMachine returns the change that adds a volume to a machine permanently, or removes one.
func changeMachine(m *kubevirt.VirtualMachine, r kubevirt.VolumeRequest) (Change, error) {
	name := nameOf(r)
	for _, other := range m.Status.VolumeRequests {
		if nameOf(other) == name {
			return Change{}, conflict(m, "a request for volume [%s] already exists", name)
		}
	}
	var volumes []kubevirt.Volume
	if m.Spec.Template != nil {
		volumes = m.Spec.Template.Spec.AllVolumes()
	}
	for _, v := range volumes {
		if c := v.PersistentVolumeClaim; c != nil {
			c.ClaimName, c.Name = claimOf(m, c.Claim()), ""
		}
	}
	if why := refused(volumes, r); why != "" {
		return Change{}, conflict(m, "%s", why)
	}
	return Change{Machine: m, Volume: &r}, nil
}

// changeInstance returns the change that adds a volume to a running guest, or removes one that was added to it.
func changeInstance(i *kubevirt.VirtualMachineInstance, r kubevirt.VolumeRequest) (Change, error) {
	name := nameOf(r)
	if !runs(i) || i.Status.Phase != kubevirt.PhaseRunning {
		return Change{}, unable(i, "VMI is not running")
	}
	if why := refused(i.Spec.Volumes, r); why != "" {
		return Change{}, unable(i, why)
	}
	c := Change{Instance: i, Volumes: slices.Clone(i.Spec.Volumes), Disks: slices.Clone(i.Spec.Domain.Devices.Disks)}
	if r.RemoveVolumeOptions != nil {
		c.Volumes = slices.DeleteFunc(c.Volumes, func(v kubevirt.Volume) bool { return v.Name == name })
		c.Disks = slices.DeleteFunc(c.Disks, func(d kubevirt.Disk) bool { return d.Name == name })
		return c, nil
	}
	disk, v := *r.AddVolumeOptions.Disk, r.AddVolumeOptions.Volume()
	disk.Name = name
	c.Volumes, c.Disks = append(c.Volumes, v), append(c.Disks, disk)
	return c, nil
}
