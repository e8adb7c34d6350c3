package clonesource

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/names"
)

// SpecDigest returns what names.FilledBy says of a claim that a DataVolume with this spec filled; "" if that cannot be said.
func SpecDigest(spec *cdiv1.DataVolumeSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// ComesBack reports whether a claim that belongs to nothing was filled by a DataVolume of this name and spec, as after a restore from a backup.
// A DataVolume that asks for something else does not get it.
func ComesBack(c *corev1.PersistentVolumeClaim, name string, spec *cdiv1.DataVolumeSpec) bool {
	said := c.Annotations[names.FilledBy]
	return said != "" && c.Name == name && metav1.GetControllerOf(c) == nil && c.Annotations[AnnPodPhase] == string(corev1.PodSucceeded) &&
		said == SpecDigest(spec)
}

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
