package replacedclaim

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
)

const (
	// AliasAnnotation on a second PersistentVolume of a volume says which one was first.
	AliasAnnotation = "berth.dev/alias-of"
	// Finalizer keeps a claim that has an alias until the launcher that uses the volume has ended, as Kubernetes keeps a claim that a pod
	// mounts. When it is removed, the alias has the reclaim policy of its volume.
	Finalizer = "berth.dev/moved-disk"
)

// First is the record on the alias of a volume about the volume's first PersistentVolume.
type First struct {
	Volume string    `json:"volume"`
	UID    types.UID `json:"uid"`
	// Policy is the reclaim policy that the alias gets when it is the only PersistentVolume of the volume.
	Policy corev1.PersistentVolumeReclaimPolicy `json:"policy"`
}

// AliasName returns the name of a volume's alias.
func AliasName(first types.UID) string { return "moved-" + string(first) }

// Alias returns a second PersistentVolume of a volume, reserved for a claim. Its reclaim policy is Retain, like that of the first
// while it has a record: only one of two PersistentVolumes of a volume may delete the volume.
func (v Volume) Alias(claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	text, err := json.Marshal(First{Volume: v.Name, UID: v.UID, Policy: v.Record.Policy})
	if err != nil {
		return nil, fmt.Errorf("write what volume %s is an alias of: %w", v.Name, err)
	}
	from := v.DeepCopy()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: AliasName(v.UID), Labels: from.Labels, Annotations: from.Annotations}, Spec: from.Spec}
	for _, key := range []string{Annotation, By, "pv.kubernetes.io/bound-by-controller"} {
		delete(pv.Annotations, key)
	}
	mark(pv, Hash(claim.Namespace, claim.Name), AliasAnnotation, string(text))
	pv.Annotations[cluster.AnnFilledFor] = string(claim.UID)
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	pv.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	return pv, nil
}

// FirstOf reads what an alias says; false if the volume is none.
func FirstOf(pv *corev1.PersistentVolume) (First, bool) {
	var f First
	text := pv.Annotations[AliasAnnotation]
	return f, text != "" && json.Unmarshal([]byte(text), &f) == nil
}

// Finished returns an alias as an ordinary volume.
func Finished(alias *corev1.PersistentVolume, f First) *corev1.PersistentVolume {
	next := alias.DeepCopy()
	delete(next.Labels, Label)
	delete(next.Annotations, AliasAnnotation)
	if f.Policy != "" {
		next.Spec.PersistentVolumeReclaimPolicy = f.Policy
	}
	return next
}

// Aliases returns the aliases that were made for a claim.
func Aliases(ctx context.Context, reader client.Reader, namespace, claim string) ([]corev1.PersistentVolume, error) {
	volumes, err := labelled(ctx, reader, namespace, claim)
	if err != nil {
		return nil, err
	}
	var out []corev1.PersistentVolume
	for _, pv := range volumes {
		at := pv.Spec.ClaimRef
		if _, ok := FirstOf(&pv); ok && at != nil && at.Namespace == namespace && at.Name == claim {
			out = append(out, pv)
		}
	}
	return out, nil
}

// ClaimOf returns the claim that a volume's record or alias is about; false if the volume has neither.
func ClaimOf(pv *corev1.PersistentVolume) (types.NamespacedName, bool) {
	if v, ok := Read(pv); ok {
		return types.NamespacedName{Namespace: v.Record.Namespace, Name: v.Record.Claim}, true
	}
	if _, ok := FirstOf(pv); ok && pv.Spec.ClaimRef != nil {
		return types.NamespacedName{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}, true
	}
	return types.NamespacedName{}, false
}
