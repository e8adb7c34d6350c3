package diskstate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// shared: several nodes can have the claim at once.
func shared(c *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(c.Spec.AccessModes, corev1.ReadWriteMany) || slices.Contains(c.Spec.AccessModes, corev1.ReadOnlyMany)
}
