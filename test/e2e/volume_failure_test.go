//go:build e2e

package e2e

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
)

// TestVolumeFails: what can never succeed fails at once and says what is wrong with it.
func TestVolumeFails(t *testing.T) {
	t.Parallel()
	right := sha256.Sum256(image(24))
	wrong := "sha256:" + strings.Repeat("0", 64)
	for name, row := range map[string]struct {
		v      volume
		says   []string
		reason string // of the Running condition; Error if empty
	}{
		"checksum": {
			volume{storage: "40Mi", change: func(dv *cdiv1.DataVolume) { dv.Spec.Source.HTTP.Checksum = wrong }},
			[]string{"checksum", wrong[7:20], hex.EncodeToString(right[:])[:13]}, "ChecksumError",
		},
		"too-large":    {volume{storage: "16Mi"}, []string{"larger", "16777216", "25165824"}, ""},
		"not-an-image": {volume{storage: "40Mi", url: "/bad.qcow2"}, []string{"qcow2"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.web.put("/bad.qcow2", append([]byte("QFI\xfb\x00\x00\x00\x03"), make([]byte, mib)...))
			row.v.class = classImmediate
			if row.v.url != "" {
				row.v.url = b.web.url + row.v.url
			}
			b.volume(row.v)
			dv := b.untilPhase("disk", cdiv1.Failed)
			for _, part := range row.says {
				if !strings.Contains(message(dv), part) {
					t.Errorf("the message does not say %q: %s", part, message(dv))
				}
			}
			if c := condition(dv, cdiv1.DataVolumeRunning); c.Status != corev1.ConditionFalse || c.Reason != cmp.Or(row.reason, "Error") {
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
	b := newBed(t)
	b.volume(volume{class: classImmediate, storage: "40Mi", url: b.web.url + "/later.img"})
	dv := b.until("disk", "to have failed once", func(dv *cdiv1.DataVolume) bool {
		return condition(dv, cdiv1.DataVolumeRunning).Reason == "Error"
	})
	for _, part := range []string{"/later.img", "404", "next try at"} {
		if !strings.Contains(message(dv), part) {
			t.Errorf("the message does not say %q: %s", part, message(dv))
		}
	}
	if dv.Status.Phase != cdiv1.ImportInProgress {
		t.Errorf("phase is %s while it is tried again", dv.Status.Phase)
	}
	b.until("disk", "to say during the next try why the last one failed", func(dv *cdiv1.DataVolume) bool {
		return strings.Contains(message(dv), "failed: ") && strings.Contains(message(dv), ", after try")
	})
	b.web.put("/later.img", image(24))
	dv = b.untilPhase("disk", cdiv1.Succeeded)
	if dv.Status.RestartCount == 0 {
		t.Error("the restart count is 0 after a failed try")
	}
	b.holds("disk", image(24), 40*mib)
}

// TestVolumeQuota: a claim the quota refuses says which quota, and is made as soon as that changes.
func TestVolumeQuota(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "team-storage"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("20Mi")}},
	}
	if err := b.kube.Create(b.Context(), quota); err != nil {
		t.Fatal(err)
	}
	b.Wait("the quota to count", patience, func(ctx context.Context) (bool, string) {
		err := b.kube.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		return err == nil && len(quota.Status.Hard) > 0, "no status"
	})
	b.volume(volume{class: classImmediate, storage: "40Mi"})
	dv := b.until("disk", "to say that the quota is exceeded", func(dv *cdiv1.DataVolume) bool {
		return condition(dv, cdiv1.DataVolumeBound).Reason == "ErrExceededQuota"
	})
	if !strings.Contains(message(dv), "team-storage") {
		t.Errorf("the message does not name the quota: %s", message(dv))
	}
	raised := quota.DeepCopy()
	raised.Spec.Hard[corev1.ResourceRequestsStorage] = resource.MustParse("1Gi")
	if err := b.kube.Patch(b.Context(), raised, client.MergeFrom(quota)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	b.untilPhase("disk", cdiv1.Succeeded)
	t.Logf("complete %s after the quota was raised", time.Since(start).Round(time.Second))
}

// TestVolumeWorkerDeleted: a worker that somebody deletes in the middle is made again, and the disk is right.
func TestVolumeWorkerDeleted(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	release := b.web.hold()
	b.volume(volume{class: classImmediate, storage: "40Mi"})
	b.untilPhase("disk", cdiv1.ImportInProgress)
	worker := b.WaitRunning("importer-disk")
	b.Delete("importer-disk")
	b.Wait("another worker", patience, func(ctx context.Context) (bool, string) {
		var pod corev1.Pod
		err := b.kube.Get(ctx, client.ObjectKeyFromObject(worker), &pod)
		return err == nil && pod.UID != worker.UID, "none yet"
	})
	release()
	b.untilPhase("disk", cdiv1.Succeeded)
	b.holds("disk", image(24), 40*mib)
}

// TestVolumeControllerKilled: of two controllers the one that leads is killed in the middle of an import; the other takes over,
// and nothing is done twice. Machines can start with the volume meanwhile, before and after.
func TestVolumeControllerKilled(t *testing.T) {
	b := newBed(t)
	release := b.web.hold()
	b.volume(volume{class: classImmediate, storage: "40Mi", annotations: map[string]string{"berth.dev/boot-early": "true", "berth.dev/contents": "raw"}})
	b.untilPhase("disk", cdiv1.ImportInProgress)
	worker := b.WaitRunning("importer-disk")
	b.Wait("the disk to be served", patience, func(context.Context) (bool, string) {
		on := b.claim("disk").Annotations["berth.dev/served-on"]
		return on == worker.Spec.NodeName, on
	})
	first := b.leader(b.Context())
	b.must(b.kube.Delete(b.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "berth", Name: first}}, client.GracePeriodSeconds(0)))
	b.Wait("another controller to lead", patience, func(ctx context.Context) (bool, string) {
		now := b.leader(ctx)
		return now != "" && now != first, now
	})
	if on := b.claim("disk").Annotations["berth.dev/served-on"]; on != worker.Spec.NodeName {
		t.Errorf("the disk is served on %q", on)
	}
	release()
	dv := b.untilPhase("disk", cdiv1.Succeeded)
	if dv.Status.RestartCount != 0 {
		t.Errorf("the import was started %d times more than needed", dv.Status.RestartCount)
	}
	if name := b.claim("disk").Annotations["cdi.kubevirt.io/storage.import.importPodName"]; name != worker.Name {
		t.Errorf("the claim names worker %q", name)
	}
	b.holds("disk", image(24), 40*mib)
}

// leader is the pod of the controller that leads; empty while none does.
func (b *bed) leader(ctx context.Context) string {
	b.T.Helper()
	var lease coordinationv1.Lease
	b.must(b.kube.Get(ctx, types.NamespacedName{Namespace: "berth", Name: "berth-controller"}, &lease))
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod
}

// TestVolumeInTheWay: a claim of somebody else is left alone, and is adopted only when asked for.
func TestVolumeInTheWay(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "disk"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr(classImmediate), Resources: request("40Mi"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}
	if err := b.kube.Create(b.Context(), pvc); err != nil {
		t.Fatal(err)
	}
	b.WaitBound("disk")
	dv := b.volume(volume{class: classImmediate, size: "40Mi", annotations: map[string]string{"cdi.kubevirt.io/allowClaimAdoption": "true"}})
	b.untilPhase("disk", cdiv1.Succeeded)
	if !metav1.IsControlledBy(b.claim("disk"), b.get(dv.Name)) {
		t.Error("the adopted claim does not belong to the volume")
	}
	if b.web.requests() != 0 {
		t.Error("an adopted claim was imported into")
	}
}

func ptr[T any](v T) *T { return &v }

// TestVolumeOfWebPage: a page where an image should be is refused as one, and is a disk if the volume says so.
func TestVolumeOfWebPage(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	page := append([]byte("<!DOCTYPE html><title>Sign in</title>"), make([]byte, mib)...)
	b.web.put("/login", page)
	b.volume(volume{name: "refused", class: classImmediate, storage: "40Mi", url: b.web.url + "/login"})
	b.volume(volume{name: "raw", class: classImmediate, storage: "40Mi", url: b.web.url + "/login",
		annotations: map[string]string{"berth.dev/contents": "raw"}})
	dv := b.untilPhase("refused", cdiv1.Failed)
	for _, part := range []string{"/login is a web page, not a disk image", "berth.dev/contents: raw"} {
		if !strings.Contains(message(dv), part) {
			t.Errorf("the message does not say %q: %s", part, message(dv))
		}
	}
	b.untilPhase("raw", cdiv1.Succeeded)
	sum := sha256.Sum256(append(page, make([]byte, 40*mib-len(page))...))
	if got := b.Sum("raw", "disk.img"); got != hex.EncodeToString(sum[:]) {
		t.Errorf("the disk is %s, not the page and zeroes", got)
	}
}
