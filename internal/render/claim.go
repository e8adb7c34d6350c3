package render

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Claim is the claim of a volume: of its name, owned by it, with its labels and annotations.
func Claim(v *cdiv1.DataVolume, spec corev1.PersistentVolumeClaimSpec) *corev1.PersistentVolumeClaim {
	labels := map[string]string{}
	maps.Copy(labels, v.Labels)
	maps.Copy(labels, Labels(""))
	labels["alerts.k8s.io/KubePersistentVolumeFillingUp"] = "disabled" // a disk image fills its volume by design
	annotations := map[string]string{}
	for key, value := range v.Annotations {
		// What kubectl remembers is about the volume, and what is recorded about a claim's contents must never be
		// inherited: it would make an empty claim look filled.
		if !strings.HasPrefix(key, "kubectl.kubernetes.io/") && !strings.HasPrefix(key, "cdi.kubevirt.io/storage.pod.") {
			annotations[key] = value
		}
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Namespace, Name: v.Name, Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{VolumeOwner(v)},
		},
		Spec: spec,
	}
}

// VolumeOwner makes v the owner of an object: deleting the volume deletes it.
func VolumeOwner(v *cdiv1.DataVolume) metav1.OwnerReference {
	return *metav1.NewControllerRef(v, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))
}
