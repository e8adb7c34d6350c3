package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Claims returns the claims of the client's namespace, without those that a populator fills on behalf of another claim.
func Claims(ctx context.Context, c *Client) ([]corev1.PersistentVolumeClaim, error) {
	list, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list PVCs: %w", err)
	}
	var out []corev1.PersistentVolumeClaim
	for _, claim := range list.Items {
		if Somebodys(&claim) {
			out = append(out, claim)
		}
	}
	return out, nil
}

// Somebodys reports whether the claim is not one that a populator fills to become another.
func Somebodys(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner == nil || owner.Kind != "PersistentVolumeClaim"
}
