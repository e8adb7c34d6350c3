package clone

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/index"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
)

// userOf names a pod that may be writing to a clone's source, or none. Our own workers only read it.
func (c *Cloner) userOf(ctx context.Context, s *Seen) (string, error) {
	source := s.found.Claim
	if source == nil {
		return "", nil
	}
	var all corev1.PodList
	users := client.MatchingFields{index.PodClaim: source.Name}
	if err := c.reader.List(ctx, &all, client.InNamespace(source.Namespace), users); err != nil {
		return "", fmt.Errorf("list pods that use %s/%s: %w", source.Namespace, source.Name, err)
	}
	for i := range all.Items {
		pod := &all.Items[i]
		if _, writes := pods.Has(pod, source.Name); !writes || pods.Over(pod) || pod.Labels[render.LabelApp] == render.App {
			continue
		}
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
