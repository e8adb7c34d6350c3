package clonesource

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/names"
)

// OfClaim returns what the claim names as its source; false if it names none. One of our sources may be in the namespace that an
// annotation names. That annotation is only a reference, like the field that it replaces: the caller must check Granted.
func OfClaim(c *corev1.PersistentVolumeClaim) (Ref, bool) {
	at, named := Of(c.Namespace, &c.Spec)
	if space := c.Annotations[names.SourceNamespace]; space != "" && PopulatedByUs(c) && ptr.Deref(c.Spec.DataSourceRef.Namespace, "") == "" {
		at.Namespace = space
	}
	return at, named
}

// MoveNamespace moves the namespace of one of our sources from the claim's dataSourceRef to an annotation, and reports whether there was
// one to move. Without the gate CrossNamespaceVolumeDataSource the API server drops a reference that has a namespace, even the claim's own,
// and the claim would be bound to an empty volume. References to other kinds are not changed.
func MoveNamespace(c *corev1.PersistentVolumeClaim) bool {
	if !PopulatedByUs(c) || c.Spec.DataSourceRef.Namespace == nil {
		return false
	}
	space := *c.Spec.DataSourceRef.Namespace
	ref := *c.Spec.DataSourceRef
	ref.Namespace = nil
	c.Spec.DataSourceRef = &ref
	if space == "" || space == c.Namespace {
		delete(c.Annotations, names.SourceNamespace)
		return true
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[names.SourceNamespace] = space
	return true
}
