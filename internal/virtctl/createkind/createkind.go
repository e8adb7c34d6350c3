// Package createkind writes the manifests of instance types and preferences, with the fields that upstream's flags set. It asks no cluster.
package createkind

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	upstream "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// Object is the name and namespace of the object to create.
type Object struct {
	Name       string // generated if it is empty
	Namespace  string // one means Namespaced
	Namespaced bool
}

// meta returns the type and metadata of the object; kind is its kind without the prefix Cluster.
func (o Object) meta(kind string) (metav1.TypeMeta, metav1.ObjectMeta) {
	prefix, full := "cluster"+strings.ToLower(kind), "VirtualMachineCluster"+kind
	if o.namespaced() {
		prefix, full = strings.ToLower(kind), "VirtualMachine"+kind
	}
	if o.Name == "" {
		o.Name = prefix + "-" + rand.String(5)
	}
	return metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: full}, metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace}
}

func (o Object) namespaced() bool { return o.Namespaced || o.Namespace != "" }

// Instancetype has the values of upstream's flags for an instance type.
type Instancetype struct {
	Object
	CPU               uint32
	Memory            string
	GPUs, HostDevices []string // name:NAME,devicename:NAME
	IOThreadsPolicy   string
}

// Manifest returns the instance type, of the cluster or of a namespace.
func (i Instancetype) Manifest() (any, error) {
	memory, err := resource.ParseQuantity(i.Memory)
	if err != nil {
		return nil, fmt.Errorf("memory %q: %w", i.Memory, err)
	}
	if i.CPU == 0 {
		return nil, errors.New("cpu value must be greater than zero") // the text clients know
	}
	spec := v1beta1.VirtualMachineInstancetypeSpec{CPU: v1beta1.CPUInstancetype{Guest: i.CPU}, Memory: v1beta1.MemoryInstancetype{Guest: memory}}
	for _, text := range i.GPUs {
		name, device, err := passed("gpu", text)
		if err != nil {
			return nil, err
		}
		spec.GPUs = append(spec.GPUs, upstream.GPU{Name: name, DeviceName: device})
	}
	for _, text := range i.HostDevices {
		name, device, err := passed("hostdevice", text)
		if err != nil {
			return nil, err
		}
		spec.HostDevices = append(spec.HostDevices, upstream.HostDevice{Name: name, DeviceName: device})
	}
	switch i.IOThreadsPolicy {
	case "":
	case string(upstream.IOThreadsPolicyAuto), string(upstream.IOThreadsPolicyShared):
		spec.IOThreadsPolicy = new(upstream.IOThreadsPolicy(i.IOThreadsPolicy))
	default:
		return nil, errors.New(`failed to parse "--iothreadspolicy" flag: IOThread must be of value auto or shared`)
	}
	kind, meta := i.meta("Instancetype")
	if i.namespaced() {
		return &v1beta1.VirtualMachineInstancetype{TypeMeta: kind, ObjectMeta: meta, Spec: spec}, nil
	}
	return &v1beta1.VirtualMachineClusterInstancetype{TypeMeta: kind, ObjectMeta: meta, Spec: spec}, nil
}

// passed reads a device that is passed on to the guest.
func passed(flag, text string) (name, device string, err error) {
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, ":")
		switch key {
		case "name":
			name = value
		case "devicename":
			device = value
		default:
			return "", "", fmt.Errorf("failed to parse \"--%s\" flag: unknown param(s): %s", flag, part)
		}
	}
	switch {
	case name == "":
		err = fmt.Errorf("failed to parse \"--%s\" flag: name must be specified", flag)
	case device == "":
		err = fmt.Errorf("failed to parse \"--%s\" flag: deviceName must be specified", flag)
	}
	return name, device, err
}

// Preference has the values of upstream's flags for a preference.
type Preference struct {
	Object
	CPUTopology, MachineType, StorageClass string
}

var topologies = []v1beta1.PreferredCPUTopology{
	v1beta1.Sockets, v1beta1.Cores, v1beta1.Threads, v1beta1.Spread, v1beta1.Any,
	v1beta1.DeprecatedPreferSockets, v1beta1.DeprecatedPreferCores, v1beta1.DeprecatedPreferThreads, v1beta1.DeprecatedPreferSpread, v1beta1.DeprecatedPreferAny,
}

// Manifest returns the preference, of the cluster or of a namespace.
func (p Preference) Manifest() (any, error) {
	var spec v1beta1.VirtualMachinePreferenceSpec
	if p.StorageClass != "" {
		spec.Volumes = &v1beta1.VolumePreferences{PreferredStorageClassName: p.StorageClass}
	}
	if p.MachineType != "" {
		spec.Machine = &v1beta1.MachinePreferences{PreferredMachineType: p.MachineType}
	}
	if p.CPUTopology != "" {
		topology := v1beta1.PreferredCPUTopology(p.CPUTopology)
		if !slices.Contains(topologies, topology) {
			return nil, errors.New(`failed to parse "--cpu-topology" flag: CPU topology must have a value of sockets, cores, threads or spread`)
		}
		spec.CPU = &v1beta1.CPUPreferences{PreferredCPUTopology: &topology}
	}
	kind, meta := p.meta("Preference")
	if p.namespaced() {
		return &v1beta1.VirtualMachinePreference{TypeMeta: kind, ObjectMeta: meta, Spec: spec}, nil
	}
	return &v1beta1.VirtualMachineClusterPreference{TypeMeta: kind, ObjectMeta: meta, Spec: spec}, nil
}
