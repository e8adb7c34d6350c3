package diskaccess

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/controller/claimusers"
)

// Writer returns who may write to the disk of a claim, in words, or otherwise keeps out a pod that would have it as reading says; "" if none does. Pods
// of others than Berth, which are in no record, are looked for too. The pods of except are not in the way.
func (r *Records) Writer(ctx context.Context, claim *corev1.PersistentVolumeClaim, reading accessv1.Holder, except ...*corev1.Pod) (string, error) {
	writers, err := claimusers.Of(ctx, r.reader, claim)
	if err != nil {
		return "", err
	}
	for _, p := range writers {
		held, err := r.HolderOf(ctx, r.reader, claim, p.UID)
		if err != nil {
			return "", err
		}
		if held == nil || !Compatible(*held, reading) {
			return fmt.Sprintf("pod %s uses PersistentVolumeClaim %s", p.Name, claim.Name), nil
		}
	}
	other, err := r.Blocker(ctx, claim, reading, except...)
	if err != nil || other == nil {
		return "", err
	}
	return fmt.Sprintf("PersistentVolumeClaim %s: %s", claim.Name, Who(other, claim.Namespace)), nil
}
