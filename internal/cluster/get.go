package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrStale means that the cache was behind the API server. The change it had missed brings its object back by itself.
var ErrStale = errors.New("the cache is behind the API server")

// Reader reads objects and cannot write.
type Reader = client.Reader

// List reads all objects of a kind in a namespace.
func List(ctx context.Context, c Reader, namespace string, into client.ObjectList) error {
	if err := c.List(ctx, into, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list %T in %s: %w", into, namespace, err)
	}
	return nil
}

// Get reads one object; nil means that there is none.
func Get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, namespace, name string) (P, error) {
	obj := P(new(T))
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, obj)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %T %s/%s: %w", obj, namespace, name, err)
	}
	return obj, nil
}

// VolumeOf reads the volume that a claim holds; nil means that it holds none. The claim's author can write spec.volumeName: the
// volume's claimRef with the claim's UID, which only the cluster writes, is the proof.
func VolumeOf(ctx context.Context, c client.Reader, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if claim == nil || claim.Spec.VolumeName == "" {
		return nil, nil
	}
	pv, err := Get[corev1.PersistentVolume](ctx, c, "", claim.Spec.VolumeName)
	if err != nil || pv == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID || claim.UID == "" {
		return nil, err
	}
	return pv, nil
}

// Owned reads the object of that name whose controller has this UID; nil means that there is none. An object of the same name with
// another owner counts as missing: any user can write labels and names, so such an object must not be trusted. Create returns an
// error about it.
func Owned[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, owner types.UID, namespace, name string) (P, error) {
	obj, err := Get[T, P](ctx, c, namespace, name)
	if err != nil || obj == nil || !OwnedBy(obj, owner) {
		return nil, err
	}
	return obj, nil
}

// OwnedBy reports whether the object's controller has this UID.
func OwnedBy(obj client.Object, owner types.UID) bool {
	ref := metav1.GetControllerOf(obj)
	return ref != nil && owner != "" && ref.UID == owner
}

// ReservedFor lists the volumes that were reserved for a claim by its name, as the annotation names.VolumeList has them. It is
// written on the claim before the claim is bound: afterwards they cannot be told from volumes that were free for any claim. A
// volume whose claimRef has a UID was the volume of a claim that is gone, and is never bound again.
func ReservedFor(ctx context.Context, c client.Reader, claim *corev1.PersistentVolumeClaim) (string, error) {
	var volumes corev1.PersistentVolumeList
	if err := c.List(ctx, &volumes); err != nil {
		return "", fmt.Errorf("list the volumes reserved for claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	waiting := []string{}
	for i := range volumes.Items {
		if ref := volumes.Items[i].Spec.ClaimRef; ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name && ref.UID == "" {
			waiting = append(waiting, volumes.Items[i].Name)
		}
	}
	list, err := json.Marshal(waiting)
	return string(list), err
}
