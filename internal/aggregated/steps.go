package aggregated

import (
	"slices"
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
)

func set(path string, value any) cluster.Operation {
	return cluster.Operation{Op: "add", Path: path, Value: value} // which replaces what is there
}

// annotate returns the step that gives the instance an annotation; none if there is no value.
func (c Change) annotate(key, value string) []cluster.Operation {
	switch {
	case value == "":
		return nil
	case len(c.Instance.Annotations) == 0:
		return []cluster.Operation{set("/metadata/annotations", map[string]string{key: value})}
	}
	return []cluster.Operation{set("/metadata/annotations/"+strings.ReplaceAll(key, "/", "~1"), value)}
}

// InstanceSteps returns the patch of the instance.
func (c Change) InstanceSteps() []cluster.Operation {
	var steps []cluster.Operation
	if c.Instance == nil {
		return nil
	}
	if c.Grace != nil {
		steps = append(steps, set("/spec/terminationGracePeriodSeconds", *c.Grace))
	}
	steps = append(steps, c.annotate(kubevirt.AnnPaused, c.Paused)...)
	steps = append(steps, c.annotate(kubevirt.AnnStays, c.Stays)...)
	if c.Volumes != nil {
		steps = append(steps, set("/spec/volumes", c.Volumes))
	}
	if c.Disks != nil {
		steps = append(steps, set("/spec/domain/devices/disks", c.Disks))
	}
	return steps
}

// MachineSteps returns the patch of the machine's spec, in the form it has.
func (c Change) MachineSteps() []cluster.Operation {
	switch {
	case c.Machine == nil || c.Strategy == nil:
		return nil
	case c.Machine.Spec.Running != nil:
		return []cluster.Operation{set("/spec/running", *c.Strategy == kubevirt.RunAlways)}
	}
	return []cluster.Operation{set("/spec/runStrategy", *c.Strategy)}
}

// StatusSteps returns the patch of the machine's status. A machine that the controller has not seen yet has none.
func (c Change) StatusSteps() []cluster.Operation {
	if c.Machine == nil || c.Requests == nil && c.Volume == nil {
		return nil
	}
	fields := map[string]any{}
	if c.Requests != nil {
		fields["stateChangeRequests"] = c.Requests
	}
	if c.Volume != nil {
		fields["volumeRequests"] = append(slices.Clone(c.Machine.Status.VolumeRequests), *c.Volume)
	}
	if c.Machine.Status.PrintableStatus == "" && c.Machine.Status.ObservedGeneration == 0 {
		return []cluster.Operation{set("/status", fields)}
	}
	var steps []cluster.Operation
	for name, value := range fields {
		steps = append(steps, set("/status/"+name, value))
	}
	return steps
}
