package imageupload

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Ensure ensures that there is a DataVolume that takes an upload, as options that have a size describe it. It is the first step of
// Run, for a sender without a local file.
func Ensure(ctx context.Context, c *kube.Client, o Options) error {
	return (&upload{Options: o, cluster: c, out: io.Discard}).ensure(ctx)
}

// Proxy returns where uploads go in, and the authority that vouches for it (PEM; empty: one that the system trusts).
func Proxy(ctx context.Context, c *kube.Client, override string) (url, ca string, err error) {
	d, err := (&upload{Options: Options{ProxyURL: override}, cluster: c}).door(ctx)
	return d.url, d.ca, err
}

// Stage returns how far a DataVolume is on its way to take an upload: it takes one, or it waits for its first consumer, or neither
// yet. Why is its message until then. An error means that it never will.
func Stage(v *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) (takes, waits bool, why string, err error) {
	at, why, err := volumeStage(v, claim)
	return at == takesUpload, at == waitsForConsumer, why, err
}
