package render

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// notInherited begin the annotations that a claim does not get from what it is made for.
var notInherited = []string{
	"kubectl.kubernetes.io/", "cdi.kubevirt.io/storage.pod.", "cdi.kubevirt.io/storage.populatedFor", "cdi.kubevirt.io/storage.import.fatalError",
	"cdi.kubevirt.io/storage.persistentVolumeList", "berth.dev/may-fill", "berth.dev/clone",
	"cdi.kubevirt.io/cloneType",
}

// Claim is a claim for a disk: meta says whose it is, with labels and annotations to begin with; it gets ours besides.
func Claim(meta metav1.ObjectMeta, spec corev1.PersistentVolumeClaimSpec) *corev1.PersistentVolumeClaim {
	labels := map[string]string{}
	maps.Copy(labels, meta.Labels)
	maps.Copy(labels, Labels(""))
	labels["alerts.k8s.io/KubePersistentVolumeFillingUp"] = "disabled" // a disk image fills its volume by design
	meta.Labels = labels
	annotations := map[string]string{}
	for key, value := range meta.Annotations {
		// What kubectl remembers is about another object, and what is recorded about a claim's contents must never be
		// inherited: it would make an empty claim look filled.
		if !slices.ContainsFunc(notInherited, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			annotations[key] = value
		}
	}
	meta.Annotations = annotations
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: spec}
}

// VolumeOwner makes v the owner of an object: deleting the volume deletes it.
func VolumeOwner(v *cdiv1.DataVolume) metav1.OwnerReference {
	return *metav1.NewControllerRef(v, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))
}

// ClaimOwner makes c the owner of an object: deleting the claim deletes it.
func ClaimOwner(c *corev1.PersistentVolumeClaim) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
}

// Size returns the capacity of a claim, or its request if it has none yet.
func Size(c *corev1.PersistentVolumeClaim) resource.Quantity {
	asked, has := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	if has.Cmp(asked) > 0 {
		return has
	}
	return asked
}
