package instancetype

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// Apply makes the instance whole: with t's processors and memory, and with p's answer wherever the machine gives none.
// Either may be nil. The instance is changed; the error is a *Problem and leaves it half done.
func Apply(i *kubevirt.VirtualMachineInstance, t *Type, p *Preference) error {
	if t != nil {
		if err := applyType(i, t, p); err != nil {
			return err
		}
	}
	if p == nil {
		return nil
	}
	prefer(&i.Spec, p)
	i.Annotations = merge(i.Annotations, p.Annotations)
	return enough(&i.Spec, t, p.Requirements)
}

func applyType(i *kubevirt.VirtualMachineInstance, t *Type, p *Preference) error {
	if found := Conflicts(&i.Spec); len(found) > 0 {
		return found[0]
	}
	if missing := unsupported(t); len(missing) > 0 {
		return &Problem{Text: fmt.Sprintf("the instance type asks for %s, which machines here cannot have; choose another",
			strings.Join(missing, ", "))}
	}
	domain := &i.Spec.Domain
	if domain.CPU == nil {
		domain.CPU = &kubevirt.CPU{}
	}
	if t.CPU.Model != nil && *t.CPU.Model != "" {
		if domain.CPU.Model != "" {
			return conflict(templatePath.Child("domain", "cpu", "model"))
		}
		domain.CPU.Model = *t.CPU.Model
	}
	cpu := topology(t.CPU.Guest, p)
	domain.CPU.Sockets, domain.CPU.Cores, domain.CPU.Threads = cpu.Sockets, cpu.Cores, cpu.Threads
	guest := t.Memory.Guest.DeepCopy()
	if domain.Memory == nil {
		domain.Memory = &kubevirt.Memory{}
	}
	domain.Memory.Guest = &guest
	if share := t.Memory.OvercommitPercent; share > 0 && share < 100 {
		if domain.Resources.Requests == nil {
			domain.Resources.Requests = corev1.ResourceList{}
		}
		asked := guest.Value() / 100 * int64(100-share)
		domain.Resources.Requests[corev1.ResourceMemory] = *resource.NewQuantity(asked, resource.BinarySI)
	}
	return applyPlacement(i, t)
}

func applyPlacement(i *kubevirt.VirtualMachineInstance, t *Type) error {
	if len(t.NodeSelector) > 0 {
		if len(i.Spec.NodeSelector) > 0 {
			return conflict(templatePath.Child("nodeSelector"))
		}
		i.Spec.NodeSelector = maps.Clone(t.NodeSelector)
	}
	if t.SchedulerName != "" {
		if i.Spec.SchedulerName != "" {
			return conflict(templatePath.Child("schedulerName"))
		}
		i.Spec.SchedulerName = t.SchedulerName
	}
	i.Annotations = merge(i.Annotations, t.Annotations)
	return nil
}

// unsupported returns the parts of an instance type that a guest would notice the lack of.
func unsupported(t *Type) []string {
	var out []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"cpu.dedicatedCPUPlacement", t.CPU.DedicatedCPUPlacement != nil && *t.CPU.DedicatedCPUPlacement},
		{"cpu.isolateEmulatorThread", t.CPU.IsolateEmulatorThread != nil && *t.CPU.IsolateEmulatorThread},
		{"cpu.numa", t.CPU.NUMA != nil},
		{"cpu.realtime", t.CPU.Realtime != nil},
		{"gpus", len(t.GPUs) > 0},
		{"hostDevices", len(t.HostDevices) > 0},
		{"launchSecurity", t.LaunchSecurity != nil},
	} {
		if f.set {
			out = append(out, f.name)
		}
	}
	return out
}

// enough compares what the machine has with what its preference requires.
func enough(spec *kubevirt.VirtualMachineInstanceSpec, t *Type, r requirements) error {
	if r == nil {
		return nil
	}
	by := "VM"
	if t != nil {
		by = "instance type"
	}
	if r.CPU != nil {
		if has := processors(spec.Domain.CPU); has < r.CPU.Guest {
			return &Problem{Text: fmt.Sprintf("insufficient CPU resources of %d vCPU provided by %s, preference requires %d vCPU",
				has, by, r.CPU.Guest)}
		}
	}
	if r.Memory != nil {
		if has := memory(spec); has.Cmp(r.Memory.Guest) < 0 {
			return &Problem{Text: fmt.Sprintf("insufficient Memory resources of %s provided by %s, preference requires %s",
				has.String(), by, r.Memory.Guest.String())}
		}
	}
	return nil
}

func memory(spec *kubevirt.VirtualMachineInstanceSpec) resource.Quantity {
	if m := spec.Domain.Memory; m != nil && m.Guest != nil {
		return *m.Guest
	}
	return *spec.Domain.Resources.Requests.Memory()
}

// merge adds what is not there.
func merge(ours, theirs map[string]string) map[string]string {
	if len(theirs) == 0 {
		return ours
	}
	out := maps.Clone(theirs)
	maps.Copy(out, ours)
	return out
}
