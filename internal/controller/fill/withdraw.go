package fill

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/render"
)

// Withdraw ends the filling of a claim that was ordered for its own sake and is not any more: its worker would keep the claim from
// being deleted, and would still take what is sent to it. One that is done and to be retained stays.
func (e *Engine) Withdraw(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	s := &Seen{order: OfClaim(c, cdiv1.DataVolumeSpec{}, cluster.Marks{}), claim: c}
	for _, role := range []string{render.RoleImport, render.RoleUpload} {
		worker, err := cluster.Get[corev1.Pod](ctx, e.reader, c.Namespace, render.WorkerName(role, c.Name))
		if err != nil {
			return err
		}
		if worker == nil || worker.DeletionTimestamp != nil || !metav1.IsControlledBy(worker, c) {
			continue
		}
		if worker.Status.Phase == corev1.PodSucceeded && c.Annotations[AnnRetain] == "true" {
			continue
		}
		if role == render.RoleUpload {
			if err := e.revoke(ctx, s, worker.Name); err != nil {
				return err
			}
		}
		if err := e.cluster.Delete(ctx, worker); err != nil {
			return err
		}
	}
	return nil
}
