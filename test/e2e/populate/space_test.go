//go:build e2e

package populate

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// grantTo lets claims of a namespace refer to the sources of clones in this one.
func grantTo(b *fixture.Volumes, namespace string) *unstructured.Unstructured {
	b.T.Helper()
	return grant(b, "team", namespace, "cdi.kubevirt.io", "VolumeCloneSource")
}

// grant lets claims of a namespace refer to everything of a kind in this one.
func grant(b *fixture.Volumes, name, namespace, group, kind string) *unstructured.Unstructured {
	b.T.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"from": []any{map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": namespace}},
		"to":   []any{map[string]any{"group": group, "kind": kind}},
	}}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "ReferenceGrant"})
	u.SetNamespace(b.Namespace)
	u.SetName(name)
	b.CreateObject(u)
	return u
}

// TestPopulateAcrossNamespaces: a claim names a source in another namespace. Without a ReferenceGrant there it is refused
// and says so; with one it is filled; once it is withdrawn the next claim is refused.
func TestPopulateAcrossNamespaces(t *testing.T) {
	t.Parallel()
	images, team := fixture.NewVolumes(t), fixture.NewVolumes(t, framework.Restricted)
	importSource(images, "image", images.Web.URL+"/disk.img")
	populate(images, populated{name: "golden", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	images.CreateCloneSource("os", "golden")
	images.UntilPopulated("golden")

	disk := populated{name: "disk", class: fixture.ClassWaits, size: "64Mi", kind: "VolumeCloneSource", source: "os", from: images.Namespace}
	populate(team, disk)
	team.ClaimSays("disk", "no ReferenceGrant in namespace "+images.Namespace)
	team.Start(framework.Pod{Name: "user", Script: "true", Claims: []string{"disk"}, User: fixture.GuestUser})
	team.UntilClaim("disk", "to have a node", func(c *corev1.PersistentVolumeClaim) bool { return c.Annotations[fixture.SelectedNodeAnnotation] != "" })
	team.StaysWithoutWorkers()
	granted := grantTo(images, team.Namespace)
	team.WaitPhase("user", corev1.PodSucceeded)
	team.UntilPopulated("disk")
	team.Delete("user")
	team.BeginsWith("disk", fixture.DiskImage(24))
	images.Wait("nothing of the clone to be left beside its source", fixture.Patience, func(ctx context.Context) (bool, string) {
		var secrets corev1.SecretList
		if err := images.Kube.List(ctx, &secrets, client.InNamespace(images.Namespace)); err != nil {
			return false, err.Error()
		}
		return len(images.WorkersOf(ctx)) == 0 && len(secrets.Items) == 0, ""
	})

	if err := images.Kube.Delete(images.Context(), granted); err != nil {
		t.Fatal(err)
	}
	disk.name = "late"
	populate(team, disk)
	team.ClaimSays("late", "no ReferenceGrant in namespace "+images.Namespace)
}

// TestPopulateRestored: claims are saved, deleted while their volumes are kept, and restored. Their data is there and
// nothing is imported again, also if the source is still there to be imported from.
func TestPopulateRestored(t *testing.T) {
	t.Parallel()
	b := fixture.NewVolumes(t, framework.Restricted)
	importSource(b, "image", b.Web.URL+"/disk.img")
	populate(b, populated{name: "disk", class: fixture.ClassImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	saved := b.UntilPopulated("disk")
	pv := b.WaitBound("disk")
	b.ChangePersistentVolume(pv.Name, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	})
	if err := b.Kube.Delete(b.Context(), saved); err != nil {
		t.Fatal(err)
	}
	b.Wait("the volume to be released", fixture.Patience, func(ctx context.Context) (bool, string) {
		var v corev1.PersistentVolume
		err := b.Kube.Get(ctx, types.NamespacedName{Name: pv.Name}, &v)
		return err == nil && v.Status.Phase == corev1.VolumeReleased, string(v.Status.Phase)
	})
	before := b.Web.Requests()

	restored := saved.DeepCopy()
	restored.ObjectMeta = metav1.ObjectMeta{Namespace: saved.Namespace, Name: saved.Name, Labels: saved.Labels, Annotations: saved.Annotations}
	// What Kubernetes noted about the old binding does not hold for the new claim; backup tools leave it out.
	delete(restored.Annotations, "pv.kubernetes.io/bind-completed")
	delete(restored.Annotations, "pv.kubernetes.io/bound-by-controller")
	// The volume still names the claim that was deleted; its restorer releases it for the new one.
	b.ChangePersistentVolume(pv.Name, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID, v.Spec.ClaimRef.ResourceVersion = "", "" })
	b.CreateObject(restored)
	b.WaitBound("disk")
	b.BeginsWith("disk", fixture.DiskImage(24))
	b.ChangePersistentVolume(pv.Name, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	if got := b.WorkersOf(b.Context()); len(got) != 0 || b.Web.Requests() != before {
		t.Errorf("workers %v and %d more requests after the restore", got, b.Web.Requests()-before)
	}
}
