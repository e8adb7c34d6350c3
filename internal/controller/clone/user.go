package clone

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/users"
)

// userOf names a pod that may be writing to a clone's source, or none.
func (c *Cloner) userOf(ctx context.Context, s *Seen) (string, error) {
	if s.found.Claim == nil {
		return "", nil
	}
	all, err := users.Of(ctx, c.reader, s.found.Claim)
	if err != nil {
		return "", err
	}
	for _, pod := range all {
		if may, err := c.mayRun(ctx, s, pod); may || err != nil {
			return pod.Namespace + "/" + pod.Name, err
		}
	}
	return "", nil
}

// mayRun: containers of the pod run, or may run at any moment. A kubelet starts none of them before all of the pod's claims are
// bound, so that a pod which waits for the clone itself is no user of its source. One that has no node yet is only a user if
// the scheduler may be about to place it because the clone is bound now: claims are bound a moment before their pod is.
func (c *Cloner) mayRun(ctx context.Context, s *Seen, pod *corev1.Pod) (bool, error) {
	if pod.Status.Phase == corev1.PodRunning {
		return true, nil
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		of, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, c.reader, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return false, err
		}
		if of == nil || of.Status.Phase != corev1.ClaimBound {
			return false, nil
		}
	}
	if pod.Spec.NodeName != "" {
		return true, nil
	}
	target := s.target.Claim
	return target != nil && pod.Namespace == target.Namespace && unplaced(pod, target.Name) && !s.apart, nil
}
