package replacedclaim

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/names"
)

// AsMade returns a claim without what Kubernetes and relocation wrote onto it.
func AsMade(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	out := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, Labels: maps.Clone(c.Labels),
		Annotations: maps.Clone(c.Annotations), OwnerReferences: c.OwnerReferences}, Spec: *c.Spec.DeepCopy()}
	for _, key := range []string{names.SelectedNode, "pv.kubernetes.io/bind-completed", names.BoundByKube, names.AskedOf,
		"volume.beta.kubernetes.io/storage-provisioner"} {
		delete(out.Annotations, key)
	}
	out.Spec.VolumeName = ""
	return out
}
