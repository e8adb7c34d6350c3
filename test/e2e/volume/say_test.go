//go:build e2e

package volume

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestVolumeSaysWhatItLacks: a claim that cannot be completed says which profile lacks what, and is made as soon as the
// profile has it.
func TestVolumeSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	mode := storagev1.VolumeBindingImmediate
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: b.Namespace}, Provisioner: "kubebox.berth.dev/local", VolumeBindingMode: &mode,
	}
	b.NoError(b.Kube.Create(b.Context(), class))
	t.Cleanup(func() { _ = b.Kube.Delete(context.Background(), class) })
	b.CreateVolume(fixture.Volume{Class: class.Name, Storage: "40Mi", Change: func(dv *cdiv1.DataVolume) { dv.Spec.Storage.AccessModes = nil }})
	dv := b.Until("disk", "to lack an access mode", func(dv *cdiv1.DataVolume) bool {
		return fixture.ConditionOf(dv, cdiv1.DataVolumeBound).Reason == "ErrClaimNotValid"
	})
	if !strings.Contains(fixture.ReadyMessageOf(dv), "StorageProfile "+class.Name) {
		t.Errorf("the message does not name the profile: %s", fixture.ReadyMessageOf(dv))
	}
	var profile cdiv1.StorageProfile
	b.NoError(b.Kube.Get(b.Context(), types.NamespacedName{Name: class.Name}, &profile))
	before := profile.DeepCopy()
	profile.Spec.ClaimPropertySets = []cdiv1.ClaimPropertySet{{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: fixture.Ptr(corev1.PersistentVolumeFilesystem),
	}}
	b.NoError(b.Kube.Patch(b.Context(), &profile, client.MergeFrom(before)))
	b.UntilPhase("disk", cdiv1.Succeeded)
}

// TestVolumeSaysWhySecretIsMissing: a worker whose Secret does not exist says so, and continues when it does.
func TestVolumeSaysWhySecretIsMissing(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi", Change: func(dv *cdiv1.DataVolume) { dv.Spec.Source.HTTP.SecretRef = "login" }})
	b.Until("disk", "to miss its secret", func(dv *cdiv1.DataVolume) bool {
		return strings.Contains(fixture.ReadyMessageOf(dv), "login") && strings.Contains(fixture.ReadyMessageOf(dv), "not found")
	})
	b.CreateLoginSecret("ada", "secret")
	b.UntilPhase("disk", cdiv1.Succeeded)
}

// TestVolumeProgress: a transfer under way shows how far it is, and its volume is not ready.
func TestVolumeProgress(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	release := b.Web.Hold()
	t.Cleanup(release)
	b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi"})
	dv := b.Until("disk", "to show a progress", func(dv *cdiv1.DataVolume) bool { return strings.HasSuffix(string(dv.Status.Progress), "%") })
	if dv.Status.Progress == "100.0%" {
		t.Errorf("progress is %s although the source holds back", dv.Status.Progress)
	}
	running, ready := fixture.ConditionOf(dv, cdiv1.DataVolumeRunning), fixture.ConditionOf(dv, cdiv1.DataVolumeReady)
	if running.Status != corev1.ConditionTrue || ready.Status != corev1.ConditionFalse || ready.Reason != "TransferRunning" {
		t.Errorf("conditions are %+v and %+v", running, ready)
	}
	release()
	b.UntilPhase("disk", cdiv1.Succeeded)
}

// TestVolumeIsNotRewritten: nothing but the status of a volume is ever written, so applying it again changes nothing.
func TestVolumeIsNotRewritten(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	made := b.CreateVolume(fixture.Volume{Class: fixture.ClassImmediate, Storage: "40Mi"})
	dv := b.UntilPhase("disk", cdiv1.Succeeded)
	if dv.Generation != made.Generation || len(dv.Annotations) != 0 || len(dv.Labels) != 0 || len(dv.Finalizers) != 0 {
		t.Errorf("the volume was rewritten: generation %d, %+v", dv.Generation, dv.ObjectMeta)
	}
}
