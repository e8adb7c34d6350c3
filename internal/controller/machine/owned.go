package machine

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/decide/machine"
)

// A claim that a DataVolume filled can be given to the machine: its owner is the machine then, and its DataVolume, if there still is one,
// leaves it alone. People do so to be rid of DataVolumes.

// owns reports whether the claim belongs to the machine of the instance, and to no DataVolume.
func (s *base) owns(c *corev1.PersistentVolumeClaim) bool {
	o := metav1.GetControllerOf(s.instance)
	return o != nil && o.Kind == "VirtualMachine" && ownedBy(c, o.UID)
}

// ownedBy reports whether a machine is among the owners of a claim and no DataVolume is; false for nil.
func ownedBy(c *corev1.PersistentVolumeClaim, machine types.UID) bool {
	if c == nil {
		return false
	}
	owned := false
	for _, o := range c.OwnerReferences {
		if o.Kind == "DataVolume" {
			return false
		}
		owned = owned || o.UID == machine
	}
	return owned
}

// worstVolume is the situation of the DataVolumes of a machine's templates: Failed, Failing, or Ready for everything else; and why, for a person.
func (w *whole) worstVolume() (machine.Disks, string) {
	worst, text := machine.Ready, ""
	for _, t := range w.vm.Spec.DataVolumeTemplates {
		v := w.volumes[t.ObjectMeta.Name]
		if v == nil || v.Status.Phase == cdiv1.Succeeded {
			continue
		}
		if is, why := volumeSituation(v); is >= machine.Failing && is > worst {
			worst, text = is, why
		}
	}
	return worst, text
}
