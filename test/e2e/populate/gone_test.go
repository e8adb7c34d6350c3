//go:build e2e

package populate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestPopulateSourceDeleted: a VolumeImportSource that is deleted while its claim is filled does not keep the claim from being completed.
func TestPopulateSourceDeleted(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	release := b.Web.Hold()
	defer release()
	importSource(b, "image", b.Web.URL+"/disk.img")
	populate(b, populated{name: "disk", class: fixture.ClassDiskImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	b.UntilClaim("disk", "to be filled", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[storagePrefix+"condition.running"] == "true"
	})
	b.NoError(b.Kube.Delete(b.Context(), &cdiv1.VolumeImportSource{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "image"}}))
	release()
	b.UntilPopulated("disk")
	b.BeginsWith("disk", fixture.DiskImage(24))
}
