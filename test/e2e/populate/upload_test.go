//go:build e2e

package populate

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestPopulateUpload: a claim waits for an upload on the node of the pod that uses it, or wherever its class binds at once;
// the client names the claim and finds the worker of its prime.
func TestPopulateUpload(t *testing.T) {
	t.Parallel()
	d := fixture.NewUploads(fixture.NewVolumes(t, framework.Restricted))
	d.CreateObject(&cdiv1.VolumeUploadSource{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "sent"}})
	disk := fixture.DiskImage(8)
	file := d.WriteFile("disk.img", disk)
	for name, class := range map[string]string{"atonce": fixture.ClassImmediate, "waits": fixture.ClassWaits, "local": fixture.ClassDiskImmediate} {
		populate(d.Volumes, populated{name: name, class: class, size: "64Mi", kind: "VolumeUploadSource", source: "sent"})
	}
	d.Start(framework.Pod{Name: "user", Script: "true", Claims: []string{"waits"}, User: fixture.GuestUser})
	for _, name := range []string{"atonce", "waits", "local"} {
		d.UntilClaim(name, "to be ready for its upload", func(c *corev1.PersistentVolumeClaim) bool {
			return c.Annotations["cdi.kubevirt.io/storage.pod.ready"] == "true"
		})
		d.Answers("200", "", d.RequestToken(name), "/v1beta1/upload", "-T", file)
		d.UntilPopulated(name)
	}
	d.WaitPhase("user", corev1.PodSucceeded)
	d.Delete("user")
	d.BeginsWith("atonce", disk)
	d.BeginsWith("waits", disk)
	d.BeginsWith("local", disk)
}

// TestUploadBareClaim: a claim that a user made and marked, as virtctl image-upload pvc does, takes an upload and remains the
// user's. A quota that leaves its worker no room is named, and the claim continues as soon as there is room.
func TestUploadBareClaim(t *testing.T) {
	t.Parallel()
	d := fixture.NewUploads(fixture.NewVolumes(t, framework.Restricted))
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "no-pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	d.CreateObject(quota)
	d.Wait("the quota to count", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := d.Kube.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		return err == nil && len(quota.Status.Hard) > 0, "no status"
	})
	class := fixture.ClassImmediate
	d.CreateObject(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: "mine", Annotations: map[string]string{"cdi.kubevirt.io/storage.upload.target": ""},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
		},
	})
	d.WaitEvent("mine", fixture.Patience, func(reason, message string) bool {
		return reason == "ErrStartingPod" && strings.Contains(message, "exceeded quota: no-pods")
	})
	raised := quota.DeepCopy()
	raised.Spec.Hard[corev1.ResourcePods] = resource.MustParse("9")
	if err := d.Kube.Patch(d.Context(), raised, client.MergeFrom(quota)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	d.UntilClaim("mine", "to be ready for its upload", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations["cdi.kubevirt.io/storage.pod.ready"] == "true"
	})
	t.Logf("ready %s after the quota was raised", time.Since(start).Round(time.Second))
	disk := fixture.DiskImage(8)
	d.Answers("200", "", d.RequestToken("mine"), "/v1beta1/upload", "-T", d.WriteFile("disk.img", disk))
	d.UntilClaim("mine", "to be full", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations["cdi.kubevirt.io/storage.pod.phase"] == string(corev1.PodSucceeded) && len(c.OwnerReferences) == 0
	})
	d.BeginsWith("mine", disk)
	d.Answers("409", "", d.RequestToken("mine"), "/v1beta1/upload", "-T", d.WriteFile("again.img", disk))
}
