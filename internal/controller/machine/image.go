package machine

import (
	"context"

	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/launch"
)

// observeRegistries finds the volumes whose images the launcher may read without TLS: they are in registries that imports may read without TLS too.
func (r *Reconciler) observeRegistries(ctx context.Context, s *run) error {
	for _, v := range s.instance.Spec.Volumes {
		if v.ContainerImage == nil {
			continue
		}
		settings, err := config.NewReader(r.reader).Settings(ctx)
		if err != nil {
			return err
		}
		if settings.Network().Plain(launch.ImageScheme + v.ContainerImage.Image) {
			s.pods.Plain = append(s.pods.Plain, v.Name)
		}
	}
	return nil
}
