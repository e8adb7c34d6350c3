// Package users finds who may be writing to a claim: whoever copies or exports one asks here. What is in the claim, and whether it is
// complete, internal/origin says.
package users

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/controller/index"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
)

// Of are the pods that have the claim, have not ended, and may write to it. A worker that fills it is one; one that reads it is not.
// reader has the indexes of internal/controller/index.
func Of(ctx context.Context, reader client.Reader, claim *corev1.PersistentVolumeClaim) ([]*corev1.Pod, error) {
	var all corev1.PodList
	if err := reader.List(ctx, &all, client.InNamespace(claim.Namespace), client.MatchingFields{index.PodClaim: claim.Name}); err != nil {
		return nil, fmt.Errorf("list pods that use %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	var out []*corev1.Pod
	for i := range all.Items {
		pod := &all.Items[i]
		if _, writes := pods.Has(pod, claim.Name); writes && !pods.Over(pod) && !render.OnlyReads(pod, claim.Name) {
			out = append(out, pod)
		}
	}
	return out, nil
}
