package observed

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
)

// NewInstance returns the instance that a machine is started with, without what its instance type adds.
func NewInstance(vm *kubevirt.VirtualMachine) *kubevirt.VirtualMachineInstance {
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: *vm.Spec.Template.ObjectMeta.DeepCopy(), Spec: *vm.Spec.Template.Spec.DeepCopy()}
	i.Name, i.Namespace, i.GenerateName = vm.Name, vm.Namespace, ""
	i.OwnerReferences = []metav1.OwnerReference{Owner(vm)}
	metav1.SetMetaDataLabel(&i.ObjectMeta, names.NoBackup, "true") // restored, it would belong to nothing and be in the way of the machine's next instance
	i.Spec.Canonical()
	nameClaims(vm, i.Spec.Volumes)
	NoteTemplate(i, vm, VolumeNames(i.Spec.Volumes))
	for n := range i.Spec.Volumes {
		i.Spec.Volumes[n].BootEarly = false // it says how the DataVolume is made
	}
	return i
}

// Owner returns the reference to a machine that owns an object.
func Owner(vm *kubevirt.VirtualMachine) metav1.OwnerReference {
	return *metav1.NewControllerRef(vm, kubevirt.GroupVersion.WithKind("VirtualMachine"))
}

// With sets a key of a map, which may be nil.
func With(m map[string]string, k, v string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}

// FinishedAt returns when the container of a pod ended; when the pod was made if that is not known.
func FinishedAt(p *corev1.Pod) time.Time {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			return c.State.Terminated.FinishedAt.Time
		}
	}
	return p.CreationTimestamp.Time
}
