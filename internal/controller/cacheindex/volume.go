package cacheindex

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// VolumeIndex finds volumes by the claim they name.
const VolumeIndex = "claimRef"

// VolumeKey returns the key of a claim in that index.
func VolumeKey(namespace, name string) string { return namespace + "/" + name }

// VolumeKeys returns the keys of a volume in that index.
func VolumeKeys(obj client.Object) []string {
	ref := obj.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil {
		return nil
	}
	return []string{VolumeKey(ref.Namespace, ref.Name)}
}
