//go:build e2e

package volume

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestImagePullFailed: a container image that cannot be had has the reason that clients know, and they see a pod that runs between the tries.
func TestImagePullFailed(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi", Change: func(dv *cdiv1.DataVolume) {
		dv.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: fixture.Ptr("docker://" + strings.TrimPrefix(b.Web.URL, "http://") + "/none:1")}}
	}})
	b.Until("disk", "to say ImagePullFailed", func(dv *cdiv1.DataVolume) bool {
		c := fixture.ConditionOf(dv, cdiv1.DataVolumeRunning)
		return c.Status == corev1.ConditionFalse && c.Reason == "ImagePullFailed"
	})
	if phase := b.ReadClaim("disk").Annotations["cdi.kubevirt.io/storage.pod.phase"]; phase != string(corev1.PodRunning) {
		t.Errorf("between the tries clients see a pod that is %q", phase)
	}
}

// TestVolumeMadeAgain: a DataVolume can be made again while the claim of the deleted one of its name is still there, and gets a claim of its own.
func TestVolumeMadeAgain(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi"})
	first := b.UntilPhase("disk", cdiv1.Succeeded)
	c := b.ReadClaim("disk")
	b.Kubectl("patch", "pvc", "disk", "--type=json", "-p", `[{"op":"add","path":"/metadata/finalizers/-","value":"e2e.berth.dev/stays"}]`)
	b.NoError(b.Kube.Delete(b.Context(), first))
	b.Wait("the claim to be collected", fixture.Patience, func(context.Context) (bool, string) { return b.ReadClaim("disk").DeletionTimestamp != nil, "it is not" })
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi"})
	b.Until("disk", "to wait for the end of the claim", func(dv *cdiv1.DataVolume) bool { return dv.UID != first.UID && fixture.ReadyMessageOf(dv) != "" })
	if now := b.ReadClaim("disk"); now.UID != c.UID {
		t.Fatalf("the claim of the deleted volume is gone")
	}
	b.Wait("the finalizer to be removed", fixture.Patience, func(ctx context.Context) (bool, string) {
		now := b.ReadClaim("disk")
		next := now.DeepCopy()
		next.Finalizers = nil
		err := b.Kube.Patch(ctx, next, client.MergeFromWithOptions(now, client.MergeFromWithOptimisticLock{}))
		return err == nil, fmt.Sprint(err)
	})
	b.UntilPhase("disk", cdiv1.Succeeded)
	if now := b.ReadClaim("disk"); now.UID == c.UID || now.DeletionTimestamp != nil {
		t.Error("the volume has the claim of the one that was deleted")
	}
}

// TestCloneOfFilesToDevice: a clone of a claim with a filesystem that asks for no size gets a device that is at least as large as its source's claim.
func TestCloneOfFilesToDevice(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	b.CreateVolume(fixture.Volume{Name: "golden", Class: fixture.ClassImmediate, Size: "96Mi"})
	b.UntilPhase("golden", cdiv1.Succeeded)
	b.CreateVolume(fixture.Volume{Name: "device", Class: fixture.ClassDiskImmediate, Storage: "1Mi", Block: true, Change: func(dv *cdiv1.DataVolume) {
		cloneOf(b.Namespace)(dv)
		dv.Spec.Storage.Resources = corev1.VolumeResourceRequirements{}
	}})
	b.UntilPhase("device", cdiv1.Succeeded)
	have, want := b.ReadClaim("device").Spec.Resources.Requests.Storage(), b.ReadClaim("golden").Spec.Resources.Requests.Storage()
	if have.Cmp(*want) < 0 {
		t.Errorf("the device is of %s, its source of %s", have, want)
	}
}

// TestCronWithoutSchedule: a DataImportCron without a schedule does not poll; it imports the version that its annotation names.
func TestCronWithoutSchedule(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	class := fixture.ClassImmediate
	cron := &cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "images"},
		Spec: cdiv1.DataImportCronSpec{ManagedDataSource: "os", Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
			Source:  &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: b.Web.URL + "/disk.img"}},
			Storage: &cdiv1.StorageSpec{StorageClassName: &class, Resources: fixture.StorageRequest("40Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
		}}},
	}
	b.CreateObject(cron)
	b.Wait("the cron to know of no image", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := b.Kube.Get(ctx, client.ObjectKeyFromObject(cron), cron)
		for _, c := range cron.Status.Conditions {
			if c.Type == cdiv1.DataImportCronUpToDate && c.Reason == "NoDigest" {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v %v", cron.Status, err)
	})
	if asked := b.Web.Requests(); asked != 0 {
		t.Errorf("it asked %d times", asked)
	}
	b.NoError(b.Kube.Patch(b.Context(), cron, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"cdi.kubevirt.io/storage.import.sourceDesiredDigest":"sha256:12345678901234567890"}}}`))))
	b.WaitCronUpToDate("images", "")
}
