package createpvc

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// KeepsSource returns an error if the API server would create the claim without the source that it names. The API server silently
// drops a source in another namespace if it does not have the gate CrossNamespaceVolumeDataSource; Berth's admission keeps the
// sources that Berth fills claims from.
func KeepsSource(ctx context.Context, c *kube.Client, pvc *corev1.PersistentVolumeClaim) error {
	ref := pvc.Spec.DataSourceRef
	if ref == nil || ptr.Deref(ref.Namespace, "") == "" {
		return nil
	}
	try := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	tried, err := c.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Create(ctx, pvc.DeepCopy(), try)
	if err != nil {
		return fmt.Errorf("create PersistentVolumeClaim: %w", err)
	}
	if tried.Spec.DataSourceRef != nil {
		return nil
	}
	return &flagError{
		error: fmt.Errorf("this cluster would make the claim without its source, %s %s in namespace %s, and it would be empty", ref.Kind, ref.Name, *ref.Namespace),
		advice: "It does not have the feature gate CrossNamespaceVolumeDataSource. Use a source in the claim's own namespace, " +
			"or a VolumeCloneSource or DataSource of Berth's data side, which needs no gate.",
	}
}
