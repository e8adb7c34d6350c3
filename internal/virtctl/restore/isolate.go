package restore

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/drill"
)

// onlyRead are the kinds of volumes that a guest only reads. With --trust, the copy of a drill may have them besides its own.
var onlyRead = []string{"secret", "configMap", "serviceAccount", "sysprep", "containerImage"}

// isolate makes the machine of a plan the copy of a drill: it reaches nobody, nobody reaches it, it runs once, and it writes to its own disks only. It returns
// what will show that the guest is up, and why that is not the machine's readiness probe if it has one.
func isolate(p *plan, o Options, line bool) (sign drill.Sign, note string, err error) {
	vm := p.machine
	spec := &vm.Spec.Template.Spec
	if shared := sharedDisks(spec, p.disks); len(shared) > 0 {
		return "", "", fmt.Errorf("a drill has to leave everything but its own disks alone, and the machine in the backup also has: %s", strings.Join(shared, "; "))
	}
	vm.Labels, vm.Annotations, vm.Spec.Template.ObjectMeta.Labels = nil, nil, nil // by which Services and policies would choose it
	drill.Mark(&vm.ObjectMeta, vm.Name, o.Name)
	for i := range vm.Spec.DataVolumeTemplates {
		drill.Mark(&vm.Spec.DataVolumeTemplates[i].ObjectMeta, vm.Name, o.Name)
	}
	for _, d := range p.disks {
		drill.Mark(&d.source.ObjectMeta, vm.Name, o.Name)
	}
	if p.aids != nil {
		p.aids.labels = vm.Labels
	}
	vm.Spec.RunStrategy = ptr.To(kubevirt.RunOnce)
	spec.StartStrategy, spec.LivenessProbe, spec.Subdomain = nil, nil, ""
	spec.Networks, spec.Domain.Devices.Interfaces, spec.Domain.Devices.AutoattachPodInterface = nil, nil, ptr.To(false)
	sign, note = signOf(spec.ReadinessProbe, line)
	if sign != drill.Probe {
		spec.ReadinessProbe = nil
	}
	return sign, note, nil
}

// signOf chooses what will show that the guest is up.
func signOf(probe *kubevirt.Probe, line bool) (sign drill.Sign, note string) {
	switch {
	case line:
		return drill.Console, ""
	case probe == nil:
		return drill.Agent, ""
	case probe.Exec != nil || probe.GuestAgentPing != nil:
		return drill.Probe, ""
	}
	return drill.Agent, "its readiness probe asks over the network, which the copy does not have"
}

// sharedDisks lists the volumes that the copy would write to, or hold, beside the machine that was backed up.
func sharedDisks(spec *kubevirt.VirtualMachineInstanceSpec, disks []restored) []string {
	var out []string
	for _, v := range spec.Volumes {
		for _, kind := range kindsOf(v) {
			ours := v.DataVolume != nil && slices.ContainsFunc(disks, func(d restored) bool { return d.name == v.DataVolume.Name })
			if kind == "dataVolume" && ours || kind != "dataVolume" && (slices.Contains(own, kind) || slices.Contains(onlyRead, kind)) {
				continue
			}
			out = append(out, fmt.Sprintf("volume %s, a %s", v.Name, kind))
		}
	}
	for _, d := range spec.Domain.Devices.Disks {
		if d.Source != nil {
			out = append(out, fmt.Sprintf("disk %s with a source of its own", d.Name))
		}
	}
	return out
}
