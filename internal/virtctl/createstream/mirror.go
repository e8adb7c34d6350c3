package createstream

import (
	"context"

	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Mirrored returns the addresses from which a cluster reads images with its mirrors. Without a cluster, or without mirrors, images
// are read from the named addresses.
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
