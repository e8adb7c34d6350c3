package clonesource

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// OfEarlierVolume reports whether the claim belongs to another DataVolume of this name than the one with that UID. Two of a name
// cannot exist, so the other is gone, and the claim is about to be garbage-collected. uid is empty for a DataVolume that is being
// created.
func OfEarlierVolume(c *corev1.PersistentVolumeClaim, name string, uid types.UID) bool {
	owner := metav1.GetControllerOf(c)
	if owner == nil || owner.Kind != "DataVolume" || owner.Name != name || owner.UID == uid {
		return false
	}
	group, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && group.Group == cdiv1.SchemeGroupVersion.Group
}
