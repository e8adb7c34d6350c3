package diskstate

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A claim that a DataVolume filled can be given to the machine: its owner is the machine then, and its DataVolume, if there still is one,
// leaves it alone. People do so to be rid of DataVolumes.

// owns reports whether the claim belongs to the machine of the instance, and to no DataVolume.
func (s *Run) owns(c *corev1.PersistentVolumeClaim) bool {
	o := metav1.GetControllerOf(s.Object)
	return o != nil && o.Kind == "VirtualMachine" && OwnedBy(c, o.UID)
}

// OwnedBy reports whether a machine is among the owners of a claim and no DataVolume is; false for nil.
func OwnedBy(c *corev1.PersistentVolumeClaim, machine types.UID) bool {
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
