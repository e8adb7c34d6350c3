package diskrelease

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Ended frees the disks of a pod whose end is certain, and lets it go.
func (r *Reconciler) Ended(ctx context.Context, p *corev1.Pod, letGo func() error) error {
	return r.Read.Records.Release(ctx, p.UID, func() error {
		if err := r.HandOver.Departed(ctx, p); err != nil {
			return err
		}
		return r.recordEnd(ctx, p)
	}, letGo)
}
