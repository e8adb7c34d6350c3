package migration

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// openCopies has the target open those copies that are in claims which several nodes can have at once.
func (r *Reconciler) openCopies(ctx context.Context, v *Move) error {
	for i := range v.Run.Pods.Copies {
		c := &v.Run.Pods.Copies[i]
		claim, err := r.copyClaim(ctx, v.Source, c.Volume)
		if err != nil {
			return err
		}
		if claim != nil && slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany) {
			c.In = claim.Name
		}
	}
	return nil
}

// copyClaim returns the claim of a copy of a launcher; nil if it has none of its own.
func (r *Reconciler) copyClaim(ctx context.Context, launcher *corev1.Pod, volume string) (*corev1.PersistentVolumeClaim, error) {
	name := render.CopyClaim(launcher, volume)
	if name == "" {
		return nil, nil
	}
	claim, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Read.Live, launcher.Namespace, name)
	if err != nil || claim == nil || claim.DeletionTimestamp != nil || !owns(claim, launcher.UID) {
		return nil, err
	}
	return claim, nil
}

// ownCopies makes the target an owner of the claims with the copies that it opens, so that they stay when the source is deleted. It is done
// before the target gets ready: the source is not deleted before that.
func (r *Reconciler) ownCopies(ctx context.Context, v *Move) error {
	for _, volume := range launcherpod.Machine(v.Target).Opened {
		claim, err := r.copyClaim(ctx, v.Source, volume)
		if err != nil {
			return err
		}
		if claim == nil || claim.Name != render.CopyClaim(v.Target, volume) {
			return fmt.Errorf("the copy of volume %s is not in the claim any more that the target was made with", volume)
		}
		if owns(claim, v.Target.UID) {
			continue
		}
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: v.Target.Name, UID: v.Target.UID}
		if err := r.Cluster.Patch(ctx, claim.DeepCopy(), cluster.Unchanged(claim), cluster.Operation{Op: "add", Path: "/metadata/ownerReferences/-", Value: owner}); err != nil {
			return err
		}
	}
	return nil
}

func owns(claim *corev1.PersistentVolumeClaim, uid types.UID) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid })
}
