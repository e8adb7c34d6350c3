package createstream

import (
	"context"

	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Mirrored are where a cluster reads images from that are named elsewhere. A manifest can be written without a cluster, and for one that does not say: then
// they are read from where they are named.
func Mirrored(ctx context.Context, c *kube.Client, images []string) []string {
	config, err := kube.Configurations.Get(ctx, c, "config")
	if err != nil || config == nil {
		return images
	}
	mirrors, err := importsource.ParseMirrors(config.Annotations[names.RegistryMirrors])
	if err != nil {
		return images
	}
	return mirrors.All(images)
}
