package status

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Objects are the objects that the answers are made from, of one namespace or of all. The caller has read them, once or by
// watches; this package does not change them. Kinds that the user may not read are empty.
type Objects struct {
	Machines  []*kubevirt.VirtualMachine
	Instances []*kubevirt.VirtualMachineInstance
	Volumes   []*cdiv1.DataVolume
	Claims    []*corev1.PersistentVolumeClaim
	PVs       map[string]*corev1.PersistentVolume
	Pods      []*corev1.Pod
}

// Key names an object of a namespace.
func Key(namespace, name string) string { return namespace + "/" + name }

// Disks returns all disks: DataVolumes, and claims that machines have or that are being filled. Which machines have each, and the
// node each of those is on, is the second answer.
func (o *Objects) Disks() (disks map[string]*Disk, used map[string]map[string]string) {
	used, disks = o.usedBy(), map[string]*Disk{}
	for _, v := range o.Volumes {
		disks[Key(v.Namespace, v.Name)] = &Disk{Disk: kube.Disk{Name: v.Name, Claim: v.Name}, Volume: v}
	}
	for _, c := range o.Claims {
		key := Key(c.Namespace, c.Name)
		if d := disks[key]; d != nil {
			d.PVC = c
		} else if len(used[key]) > 0 || ours(c) {
			disks[key] = &Disk{Disk: kube.Disk{Name: c.Name, Claim: c.Name}, PVC: c}
		}
	}
	for _, d := range disks {
		if d.PVC != nil {
			d.PV = o.PVs[d.PVC.Spec.VolumeName]
		}
	}
	return disks, used
}

// List is every disk as virtctl volumes shows it, sorted by name. How full one is, is not among the objects.
func (o *Objects) List() []Volume {
	disks, used := o.Disks()
	out := make([]Volume, 0, len(disks))
	for _, key := range slices.Sorted(maps.Keys(disks)) {
		v := disks[key].row()
		v.Machines = slices.Sorted(maps.Keys(used[key]))
		out = append(out, v)
	}
	return out
}

// Machine returns a machine with the objects that belong to it; nil if there is none of that name.
func (o *Objects) Machine(namespace, name string) *Seen {
	at := slices.IndexFunc(o.Machines, func(m *kubevirt.VirtualMachine) bool { return m.Namespace == namespace && m.Name == name })
	if at < 0 {
		return nil
	}
	s := &Seen{Machine: o.Machines[at]}
	for _, i := range o.Instances {
		if i.Namespace == namespace && i.Name == name {
			s.Instance = i
		}
	}
	for _, p := range o.Pods {
		if p.Namespace == namespace {
			s.Pods = append(s.Pods, *p)
		}
	}
	slices.SortFunc(s.Pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	disks, _ := o.Disks()
	for _, d := range kube.Disks(s.Machine, s.Instance) {
		disk := Disk{Disk: d}
		if known := disks[Key(namespace, d.Claim)]; known != nil {
			disk.Volume, disk.PVC, disk.PV = known.Volume, known.PVC, known.PV
		}
		s.Disks = append(s.Disks, disk)
	}
	return s
}

// usedBy returns the machines that have each claim, and the node each of them is on; empty: on none.
func (o *Objects) usedBy() map[string]map[string]string {
	used := map[string]map[string]string{}
	note := func(namespace, machine, node string, disks []kube.Disk) {
		for _, d := range disks {
			key := Key(namespace, d.Claim)
			if used[key] == nil {
				used[key] = map[string]string{}
			}
			if used[key][machine] == "" {
				used[key][machine] = node
			}
		}
	}
	for _, vm := range o.Machines {
		note(vm.Namespace, vm.Name, "", kube.Disks(vm, nil))
	}
	for _, i := range o.Instances {
		note(i.Namespace, i.Name, i.Status.NodeName, kube.Disks(&kubevirt.VirtualMachine{}, i))
	}
	return used
}
