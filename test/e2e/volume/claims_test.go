//go:build e2e

package volume

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// allow gives a user rights in this test's namespace.
func allow(b *fixture.Volumes, user string, resources ...string) {
	b.T.Helper()
	meta := metav1.ObjectMeta{Namespace: b.Namespace, Name: user}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"cdi.kubevirt.io"}, Resources: resources, Verbs: []string{"create", "get"}}}
	if err := b.Kube.Create(b.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}); err != nil {
		b.T.Fatal(err)
	}
	if err := b.Kube.Create(b.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}); err != nil {
		b.T.Fatal(err)
	}
}

func describeClaim(pvc *corev1.PersistentVolumeClaim) string {
	size := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	return fmt.Sprintf("%v %s %s", pvc.Spec.AccessModes, *pvc.Spec.VolumeMode, size.String())
}

// claimOf waits for the claim of a volume.
func claimOf(b *fixture.Volumes, name string) *corev1.PersistentVolumeClaim {
	b.T.Helper()
	var pvc corev1.PersistentVolumeClaim
	b.Wait("claim "+name, fixture.Patience, func(ctx context.Context) (bool, string) {
		err := b.Kube.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: name}, &pvc)
		return err == nil, fmt.Sprint(err)
	})
	return &pvc
}

// TestClaimsFromProfile: docs/flows/claims.md 1-4. A volume that says nothing but a size and a class gets the claim that
// suits the class: Block where its volumes are devices, a filesystem with room for the disk where they are directories.
func TestClaimsFromProfile(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	for class, want := range map[string]string{
		fixture.ClassStatic: "[ReadWriteOnce] Block 100Mi",
		fixture.ClassWaits:  "[ReadWriteOnce] Filesystem 121Mi", // 100 and what a small ext4 keeps: 4 and 13.5 % of 121
	} {
		b.CreateVolume(fixture.Volume{Name: class, Class: class, Storage: "100Mi", Change: func(dv *cdiv1.DataVolume) { dv.Spec.Storage.AccessModes = nil }})
		if got := describeClaim(claimOf(b, class)); got != want {
			t.Errorf("class %s: the claim is %s, want %s", class, got, want)
		}
		b.UntilPhase(class, cdiv1.WaitForFirstConsumer)
		b.Consume(class, b.ReadyNodes()[0])
		b.UntilPhase(class, cdiv1.Succeeded)
	}
}

// TestClaimsWebhook: docs/flows/claims.md 5. A claim that only asks for the profile is completed before the API server
// looks at it, and works like any other.
func TestClaimsWebhook(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	class, mode := fixture.ClassStatic, cdiv1.PersistentVolumeFromStorageProfile
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "mine", Labels: map[string]string{"cdi.kubevirt.io/applyStorageProfile": "true"}},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeMode: &mode, Resources: fixture.StorageRequest("100Mi")},
	}
	if err := b.Kube.Create(b.Context(), pvc); err != nil {
		t.Fatal(err)
	}
	if got, want := describeClaim(pvc), "[ReadWriteOnce] Block 100Mi"; got != want {
		t.Errorf("the claim is %s, want %s", got, want)
	}
	b.Start(framework.Pod{Name: "user", Script: "dd if=/dev/mine bs=1M count=1 of=/dev/null", Claims: []string{"mine"}, User: fixture.GuestUser})
	b.WaitPhase("user", corev1.PodSucceeded)
	b.Delete("user")

	pvc = &corev1.PersistentVolumeClaim{ // the same without the label is none of our business
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "other"},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class, Resources: fixture.StorageRequest("100Mi")},
	}
	if err := b.Kube.Create(b.Context(), pvc); err == nil || !strings.Contains(err.Error(), "access mode") {
		t.Errorf("an incomplete claim without the label: %v", err)
	}
}

// TestClaimsProfileFollowsClass: docs/flows/claims.md 1. A profile comes and goes with its class.
func TestClaimsProfileFollowsClass(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.Namespace}, Provisioner: "rbd.csi.ceph.com"}
	if err := b.Kube.Create(b.Context(), class); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Kube.Delete(context.WithoutCancel(b.Context()), class) })
	key := types.NamespacedName{Name: class.Name}
	b.Wait("the profile", fixture.Patience, func(ctx context.Context) (bool, string) {
		var p cdiv1.StorageProfile
		err := b.Kube.Get(ctx, key, &p)
		return err == nil && len(p.Status.ClaimPropertySets) == 3, fmt.Sprint(err, p.Status)
	})
	if err := b.Kube.Delete(b.Context(), class); err != nil {
		t.Fatal(err)
	}
	b.Wait("the profile to go", fixture.Patience, func(ctx context.Context) (bool, string) {
		err := b.Kube.Get(ctx, key, &cdiv1.StorageProfile{})
		return err != nil && client.IgnoreNotFound(err) == nil, fmt.Sprint(err)
	})
}

// TestClaimsRefused: docs/flows/claims.md 6. The installed webhooks answer, through the Service and with the certificate
// the controller made.
func TestClaimsRefused(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t)
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "disk"},
		Spec: cdiv1.DataVolumeSpec{
			Source:  &cdiv1.DataVolumeSource{VDDK: &cdiv1.DataVolumeSourceVDDK{}},
			Storage: &cdiv1.StorageSpec{Resources: fixture.StorageRequest("1Gi")},
		},
	}
	err := b.Kube.Create(b.Context(), dv, client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "import it with source http or upload") {
		t.Errorf("got %v", err)
	}
}

// TestClaimsCloneAcrossNamespaces: docs/flows/claims.md 7. A user who may create datavolumes/source where the image is gets a
// copy of it; a user who may not is told so, and cannot use another user's proof either.
func TestClaimsCloneAcrossNamespaces(t *testing.T) {
	t.Parallel()
	images, b := fixture.NewVolumes(t), fixture.NewVolumes(t)
	node := b.ReadyNodes()[0]
	images.CreateGoldenClaim(fixture.ClassWaits, node)
	allow(images, "alice-"+b.Namespace, "datavolumes/source")
	for _, user := range []string{"alice", "bob"} {
		allow(b, user+"-"+b.Namespace, "datavolumes")
	}
	class := fixture.ClassWaits
	clone := func(name string) *cdiv1.DataVolume {
		dv := &cdiv1.DataVolume{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name},
			Spec:       cdiv1.DataVolumeSpec{Storage: &cdiv1.StorageSpec{StorageClassName: &class}},
		}
		cloneOf(images.Namespace)(dv)
		return dv
	}
	bob := "bob-" + b.Namespace
	want := fmt.Sprintf("User %s has insufficient permissions in clone source namespace %s", bob, images.Namespace)
	if err := b.AsUser(bob).Create(b.Context(), clone("stolen")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Bob: got %v, want %s", err, want)
	}
	mine := clone("copy")
	if err := b.AsUser("alice-"+b.Namespace).Create(b.Context(), mine); err != nil {
		t.Fatal(err)
	}
	stolen := clone("stolen")
	stolen.Annotations = mine.Annotations
	if err := b.AsUser(bob).Create(b.Context(), stolen); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Bob with Alice's proof: got %v, want %s", err, want)
	}
	b.UntilPhase("copy", cdiv1.WaitForFirstConsumer)
	b.Consume("copy", node)
	b.UntilPhase("copy", cdiv1.Succeeded)
	b.Delete("consumer-copy")
	b.Holds("copy", fixture.DiskImage(24), 40*fixture.MiB)
}
