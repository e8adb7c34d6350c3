//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// classPath behaves as rancher.io/local-path does: it waits for the first consumer and looks at no data source.
const classPath = "local-path"

// templated is a machine whose one disk is a volumeClaimTemplate with a source.
func (y *yard) templated(name, class string, ref corev1.TypedObjectReference) *kubevirt.VirtualMachine {
	vm := y.tiny(name)
	mode, group := corev1.PersistentVolumeFilesystem, cdiv1.SchemeGroupVersion.Group
	ref.APIGroup = &group
	vm.Spec.VolumeClaimTemplates = []kubevirt.VolumeClaimTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, VolumeMode: &mode, Resources: request("128Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		DataSourceRef: &ref,
	}}}
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "root"}}}}
	return vm
}

// TestStockClasses: machines with volumeClaimTemplates run from the disk that they were to have, on every class that a cluster may have: static
// local volumes, a provisioner that looks at no data source, a CSI driver. One source is in another namespace, and the API server has no gate on.
func TestStockClasses(t *testing.T) {
	t.Parallel()
	for _, class := range []string{classStatic, classPath, classDisk} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			b, images := &bed{Env: y.Env, kube: y.kube}, newBed(t)
			d := newDoor(b)
			images.importSource("image", images.web.url+"/disk.img")
			images.populate(populated{name: "golden", class: classImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
			images.cloneSource("os", "golden")
			images.grantTo(y.Namespace)
			b.importSource("image", images.web.url+"/disk.img")
			b.importSource("seed", images.web.url+"/disk.img")
			b.populate(populated{name: "golden", class: classImmediate, size: "64Mi", kind: "VolumeImportSource", source: "seed"})
			b.cloneSource("os", "golden")
			b.create(&cdiv1.VolumeUploadSource{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "door"}})
			for _, one := range []struct {
				name string
				ref  corev1.TypedObjectReference
			}{
				{"import", corev1.TypedObjectReference{Kind: cdiv1.VolumeImportSourceRef, Name: "image"}},
				{"upload", corev1.TypedObjectReference{Kind: cdiv1.VolumeUploadSourceRef, Name: "door"}},
				{"clone", corev1.TypedObjectReference{Kind: cdiv1.VolumeCloneSourceRef, Name: "os"}},
				{"abroad", corev1.TypedObjectReference{Kind: cdiv1.VolumeCloneSourceRef, Name: "os", Namespace: &images.Namespace}},
			} {
				vm := y.templated(one.name, class, one.ref)
				y.create(vm)
				claim := fmt.Sprintf("%s-root", one.name)
				data := image(24)
				if one.name == "upload" {
					data = image(8)
					d.untilClaim(claim, "to be ready for its upload", func(c *corev1.PersistentVolumeClaim) bool {
						return c.Annotations["cdi.kubevirt.io/storage.pod.ready"] == "true"
					})
					d.answers("200", "", d.token(claim), "/v1beta1/upload", "-T", d.file("disk.img", data))
				}
				y.status(vm, kubevirt.StatusRunning, boot)
				c := b.claim(claim)
				if c.Annotations[podPhase] != string(corev1.PodSucceeded) || c.Spec.DataSourceRef == nil {
					t.Errorf("%s: the machine runs, and its claim says %v", claim, c.Annotations)
				}
				b.begins(claim, data)
				if err := y.kube.Delete(y.Context(), vm); err != nil { // there are few static volumes
					t.Fatal(err)
				}
			}
		})
	}
}
