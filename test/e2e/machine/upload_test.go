//go:build e2e

package machine

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestMachineWaitsForItsUpload: a machine on a claim that an image is uploaded into does not boot before that is complete: neither one
// that is started first, whose consumer binds the claim, nor one that is started while the worker waits for the image.
func TestMachineWaitsForItsUpload(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	d := fixture.NewUploads(&fixture.Volumes{Env: y.Env, Kube: y.Kube})
	disk := fixture.DiskImage(8)
	file := d.WriteFile("disk.img", disk)
	for name, class := range map[string]string{"machine-first": fixture.ClassWaits, "upload-first": fixture.ClassImmediate} {
		mode := corev1.PersistentVolumeFilesystem
		d.CreateObject(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name, Annotations: map[string]string{"cdi.kubevirt.io/storage.upload.target": ""}},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, VolumeMode: &mode, Resources: fixture.StorageRequest("64Mi"),
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			},
		})
	}
	ready := func(name string) {
		d.UntilClaim(name, "to be ready for its upload", func(c *corev1.PersistentVolumeClaim) bool {
			return c.Annotations["cdi.kubevirt.io/storage.pod.ready"] == "true"
		})
	}
	ready("upload-first")
	for _, name := range []string{"machine-first", "upload-first"} {
		vm := y.TinyMachine(name)
		vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{
			{Name: "disk", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: name}}}}
		y.CreateMachine(vm)
		ready(name)
		y.Wait("machine "+name+" to say what it waits for", fixture.Patience, func(ctx context.Context) (bool, string) {
			i := y.InstanceOf(ctx, vm)
			if i == nil {
				return false, "there is no instance"
			}
			said := string(i.Status.Phase)
			for _, c := range i.Status.Conditions {
				said += "; " + c.Message
			}
			if i.Status.Phase == kubevirt.PhaseRunning {
				t.Fatalf("machine %s runs on a claim without its image", name)
			}
			return strings.Contains(said, "still being filled by an upload"), said
		})
		d.Answers("200", "", d.RequestToken(name), "/v1beta1/upload", "-T", file)
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		d.UntilClaim(name, "to be full", func(c *corev1.PersistentVolumeClaim) bool {
			return c.Annotations[fixture.PodPhaseAnnotation] == string(corev1.PodSucceeded)
		})
	}
}
