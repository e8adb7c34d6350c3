//go:build e2e

package e2e

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

	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestPopulateUpload: a claim waits for an upload on the node of the pod that uses it, or wherever its class binds at once;
// the client names the claim and finds the worker of its prime.
func TestPopulateUpload(t *testing.T) {
	t.Parallel()
	d := newDoor(newBed(t, framework.Restricted))
	d.create(&cdiv1.VolumeUploadSource{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "sent"}})
	disk := image(8)
	file := d.file("disk.img", disk)
	for name, class := range map[string]string{"atonce": classImmediate, "waits": classWaits, "local": classDiskImmediate} {
		d.populate(populated{name: name, class: class, size: "64Mi", kind: "VolumeUploadSource", source: "sent"})
	}
	d.Start(framework.Pod{Name: "user", Script: "true", Claims: []string{"waits"}, User: guest})
	for _, name := range []string{"atonce", "waits", "local"} {
		d.untilClaim(name, "to be ready for its upload", func(c *corev1.PersistentVolumeClaim) bool {
			return c.Annotations["cdi.kubevirt.io/storage.pod.ready"] == "true"
		})
		d.answers("200", "", d.token(name), "/v1beta1/upload", "-T", file)
		d.untilPopulated(name)
	}
	d.WaitPhase("user", corev1.PodSucceeded)
	d.Delete("user")
	d.begins("atonce", disk)
	d.begins("waits", disk)
	d.begins("local", disk)
}

// TestUploadBareClaim: a claim that somebody made and marked, as virtctl image-upload pvc does, takes an upload and stays
// theirs. A quota that leaves its worker no room is named, and the claim goes on as soon as there is room.
func TestUploadBareClaim(t *testing.T) {
	t.Parallel()
	d := newDoor(newBed(t, framework.Restricted))
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "no-pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	d.create(quota)
	d.Wait("the quota to count", patience, func(ctx context.Context) (bool, string) {
		err := d.kube.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		return err == nil && len(quota.Status.Hard) > 0, "no status"
	})
	class := classImmediate
	d.create(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: "mine", Annotations: map[string]string{"cdi.kubevirt.io/storage.upload.target": ""},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
		},
	})
	d.WaitEvent("mine", patience, func(reason, message string) bool {
		return reason == "ErrStartingPod" && strings.Contains(message, "exceeded quota: no-pods")
	})
	raised := quota.DeepCopy()
	raised.Spec.Hard[corev1.ResourcePods] = resource.MustParse("9")
	if err := d.kube.Patch(d.Context(), raised, client.MergeFrom(quota)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	d.untilClaim("mine", "to be ready for its upload", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations["cdi.kubevirt.io/storage.pod.ready"] == "true"
	})
	t.Logf("ready %s after the quota was raised", time.Since(start).Round(time.Second))
	disk := image(8)
	d.answers("200", "", d.token("mine"), "/v1beta1/upload", "-T", d.file("disk.img", disk))
	d.untilClaim("mine", "to be full", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations["cdi.kubevirt.io/storage.pod.phase"] == string(corev1.PodSucceeded) && len(c.OwnerReferences) == 0
	})
	d.begins("mine", disk)
	d.answers("409", "", d.token("mine"), "/v1beta1/upload", "-T", d.file("again.img", disk))
}
