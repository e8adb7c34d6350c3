package imageupload

import (
	"context"
	"fmt"
	"maps"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// dataSource makes a DataSource of the same name for the uploaded volume, for clones.
func (u *upload) dataSource(ctx context.Context) error {
	source := cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: u.cluster.Namespace, Name: u.Name}}
	old, err := kube.DataSources.Get(ctx, u.cluster, u.Name)
	if err != nil {
		return err
	}
	if old == nil {
		if _, err := kube.DataSources.Create(ctx, u.cluster, &cdiv1.DataSource{
			ObjectMeta: u.meta(), Spec: cdiv1.DataSourceSpec{Source: source},
		}); err != nil {
			return err
		}
		u.say("Created a new DataSource %s/%s", u.cluster.Namespace, u.Name)
		return nil
	}
	old.Spec.Source = source
	if old.Labels == nil && len(u.Labels) > 0 {
		old.Labels = map[string]string{}
	}
	maps.Copy(old.Labels, u.Labels)
	if err := kube.DataSources.Update(ctx, u.cluster, old); err != nil {
		return fmt.Errorf("point it to the new volume: %w", err)
	}
	u.say("Updated an existing DataSource %s/%s", u.cluster.Namespace, u.Name)
	return nil
}
