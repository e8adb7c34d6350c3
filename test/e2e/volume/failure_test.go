//go:build e2e

package volume

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestVolumeFails: what can never succeed fails at once and says what is wrong with it.
func TestVolumeFails(t *testing.T) {
	t.Parallel()
	right := sha256.Sum256(fixture.DiskImage(24))
	wrong := "sha256:" + strings.Repeat("0", 64)
	for name, row := range map[string]struct {
		v      fixture.Volume
		says   []string
		reason string // of the Running condition; Error if empty
	}{
		"checksum": {
			fixture.Volume{Storage: "40Mi", Change: func(dv *cdiv1.DataVolume) { dv.Spec.Source.HTTP.Checksum = wrong }},
			[]string{"checksum", wrong[7:20], hex.EncodeToString(right[:])[:13]}, "ChecksumError",
		},
		"too-large":    {fixture.Volume{Storage: "16Mi"}, []string{"larger", "16777216", "25165824"}, ""},
		"not-an-image": {fixture.Volume{Storage: "40Mi", URL: "/bad.qcow2"}, []string{"qcow2"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.NewVolumes(t)
			b.Web.Put("/bad.qcow2", append([]byte("QFI\xfb\x00\x00\x00\x03"), make([]byte, fixture.MiB)...))
			row.v.Class = fixture.ClassImmediate
			if row.v.URL != "" {
				row.v.URL = b.Web.URL + row.v.URL
			}
			b.CreateVolume(row.v)
			dv := b.UntilPhase("disk", cdiv1.Failed)
			for _, part := range row.says {
				if !strings.Contains(fixture.ReadyMessageOf(dv), part) {
					t.Errorf("the message does not say %q: %s", part, fixture.ReadyMessageOf(dv))
				}
			}
			if c := fixture.ConditionOf(dv, cdiv1.DataVolumeRunning); c.Status != corev1.ConditionFalse || c.Reason != cmp.Or(row.reason, "Error") {
				t.Errorf("clients look for Running=False, reason %s; it is %+v", cmp.Or(row.reason, "Error"), c)
			}
			if dv.Status.RestartCount != 0 {
				t.Errorf("tried %d times again although it could never succeed", dv.Status.RestartCount)
			}
		})
	}
}

// TestVolumeRetries: an image that is not there yet is tried again, the last error and the next try always visible.
func TestVolumeRetries(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi", URL: b.Web.URL + "/later.img"})
	dv := b.Until("disk", "to have failed once", func(dv *cdiv1.DataVolume) bool {
		return fixture.ConditionOf(dv, cdiv1.DataVolumeRunning).Reason == "Error"
	})
	for _, part := range []string{"/later.img", "404", "next try at"} {
		if !strings.Contains(fixture.ReadyMessageOf(dv), part) {
			t.Errorf("the message does not say %q: %s", part, fixture.ReadyMessageOf(dv))
		}
	}
	if dv.Status.Phase != cdiv1.ImportInProgress {
		t.Errorf("phase is %s while it is tried again", dv.Status.Phase)
	}
	b.Until("disk", "to say during the next try why the last one failed", func(dv *cdiv1.DataVolume) bool {
		return strings.Contains(fixture.ReadyMessageOf(dv), "failed: ") && strings.Contains(fixture.ReadyMessageOf(dv), ", after try")
	})
	b.Web.Put("/later.img", fixture.DiskImage(24))
	dv = b.UntilPhase("disk", cdiv1.Succeeded)
	if dv.Status.RestartCount == 0 {
		t.Error("the restart count is 0 after a failed try")
	}
	b.Holds("disk", fixture.DiskImage(24), 40*fixture.MiB)
}

// TestVolumeQuota: a claim the quota refuses says which quota, and is made as soon as that changes.
func TestVolumeQuota(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "team-storage"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("20Mi")}},
	}
	if err := b.Kube.Create(b.Context(), quota); err != nil {
		t.Fatal(err)
	}
	b.Wait("the quota to count", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := b.Kube.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		return err == nil && len(quota.Status.Hard) > 0, "no status"
	})
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi"})
	dv := b.Until("disk", "to say that the quota is exceeded", func(dv *cdiv1.DataVolume) bool {
		return fixture.ConditionOf(dv, cdiv1.DataVolumeBound).Reason == "ErrExceededQuota"
	})
	if !strings.Contains(fixture.ReadyMessageOf(dv), "team-storage") {
		t.Errorf("the message does not name the quota: %s", fixture.ReadyMessageOf(dv))
	}
	raised := quota.DeepCopy()
	raised.Spec.Hard[corev1.ResourceRequestsStorage] = resource.MustParse("1Gi")
	if err := b.Kube.Patch(b.Context(), raised, client.MergeFrom(quota)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	b.UntilPhase("disk", cdiv1.Succeeded)
	t.Logf("complete %s after the quota was raised", time.Since(start).Round(time.Second))
}

// TestVolumeWorkerDeleted: a worker that a user deletes in the middle is made again, and the disk is right.
func TestVolumeWorkerDeleted(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	release := b.Web.Hold()
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi"})
	b.UntilPhase("disk", cdiv1.ImportInProgress)
	worker := b.WaitRunning("importer-disk")
	b.Delete("importer-disk")
	b.Wait("another worker", fixture.Patience, func(ctx context.Context) (bool, string) {
		var pod corev1.Pod
		err := b.Kube.Get(ctx, client.ObjectKeyFromObject(worker), &pod)
		return err == nil && pod.UID != worker.UID, "none yet"
	})
	release()
	b.UntilPhase("disk", cdiv1.Succeeded)
	b.Holds("disk", fixture.DiskImage(24), 40*fixture.MiB)
}

// TestVolumeControllerKilled: of two controllers the one that leads is killed in the middle of an import; the other takes over,
// and nothing is done twice. Machines can start with the volume meanwhile, before and after.
func TestVolumeControllerKilled(t *testing.T) {
	b := fixture.NewVolumes(t)
	release := b.Web.Hold()
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi", Annotations: map[string]string{"berth.dev/boot-early": "true", "berth.dev/contents": "raw"}})
	b.UntilPhase("disk", cdiv1.ImportInProgress)
	worker := b.WaitRunning("importer-disk")
	b.Wait("the disk to be served", fixture.Patience, func(context.Context) (bool, string) {
		on := b.ReadClaim("disk").Annotations["berth.dev/served-on"]
		return on == worker.Spec.NodeName, on
	})
	first := leader(b.Context(), b)
	b.NoError(b.Kube.Delete(b.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "berth", Name: first}}, client.GracePeriodSeconds(0)))
	b.Wait("another controller to lead", fixture.Patience, func(ctx context.Context) (bool, string) {
		now := leader(ctx, b)
		return now != "" && now != first, now
	})
	if on := b.ReadClaim("disk").Annotations["berth.dev/served-on"]; on != worker.Spec.NodeName {
		t.Errorf("the disk is served on %q", on)
	}
	release()
	dv := b.UntilPhase("disk", cdiv1.Succeeded)
	if dv.Status.RestartCount != 0 {
		t.Errorf("the import was started %d times more than needed", dv.Status.RestartCount)
	}
	if name := b.ReadClaim("disk").Annotations["cdi.kubevirt.io/storage.import.importPodName"]; name != worker.Name {
		t.Errorf("the claim names worker %q", name)
	}
	b.Holds("disk", fixture.DiskImage(24), 40*fixture.MiB)
}

// leader is the pod of the controller that leads; empty while none does.
func leader(ctx context.Context, b *fixture.Volumes) string {
	b.T.Helper()
	var lease coordinationv1.Lease
	b.NoError(b.Kube.Get(ctx, types.NamespacedName{Namespace: "berth", Name: "berth-controller"}, &lease))
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod
}

// TestVolumeInTheWay: a claim of another owner is left alone, and is adopted only when asked for.
func TestVolumeInTheWay(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "disk"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: fixture.Ptr(fixture.ClassImmediate), Resources: fixture.StorageRequest("40Mi"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}
	if err := b.Kube.Create(b.Context(), pvc); err != nil {
		t.Fatal(err)
	}
	b.WaitBound("disk")
	dv := b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Size: "40Mi", Annotations: map[string]string{"cdi.kubevirt.io/allowClaimAdoption": "true"}})
	b.UntilPhase("disk", cdiv1.Succeeded)
	if !metav1.IsControlledBy(b.ReadClaim("disk"), b.ReadVolume(dv.Name)) {
		t.Error("the adopted claim does not belong to the volume")
	}
	if b.Web.Requests() != 0 {
		t.Error("an adopted claim was imported into")
	}
}

// TestVolumeOfWebPage: a page where an image should be is refused as one, and is a disk if the volume says so.
func TestVolumeOfWebPage(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	page := append([]byte("<!DOCTYPE html><title>Sign in</title>"), make([]byte, fixture.MiB)...)
	b.Web.Put("/login", page)
	b.CreateVolume(fixture.Volume{Name: "refused", Class: fixture.ClassImmediate, Storage: "40Mi", URL: b.Web.URL + "/login"})
	b.CreateVolume(fixture.Volume{Name: "raw", Class: fixture.ClassImmediate, Storage: "40Mi", URL: b.Web.URL + "/login",
		Annotations: map[string]string{"berth.dev/contents": "raw"}})
	dv := b.UntilPhase("refused", cdiv1.Failed)
	for _, part := range []string{"/login is a web page, not a disk image", "berth.dev/contents: raw"} {
		if !strings.Contains(fixture.ReadyMessageOf(dv), part) {
			t.Errorf("the message does not say %q: %s", part, fixture.ReadyMessageOf(dv))
		}
	}
	b.UntilPhase("raw", cdiv1.Succeeded)
	sum := sha256.Sum256(append(page, make([]byte, 40*fixture.MiB-len(page))...))
	if got := b.Sum("raw", "disk.img"); got != hex.EncodeToString(sum[:]) {
		t.Errorf("the disk is %s, not the page and zeroes", got)
	}
}
