//go:build e2e

package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// grantTo lets claims of a namespace refer to the sources of clones in this one.
func (b *bed) grantTo(namespace string) *unstructured.Unstructured {
	b.T.Helper()
	return b.grant("team", namespace, "cdi.kubevirt.io", "VolumeCloneSource")
}

// grant lets claims of a namespace refer to everything of a kind in this one.
func (b *bed) grant(name, namespace, group, kind string) *unstructured.Unstructured {
	b.T.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"from": []any{map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": namespace}},
		"to":   []any{map[string]any{"group": group, "kind": kind}},
	}}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "ReferenceGrant"})
	u.SetNamespace(b.Namespace)
	u.SetName(name)
	b.create(u)
	return u
}

// TestPopulateAcrossNamespaces: a claim names a source in another namespace. Without a ReferenceGrant there it is refused
// and says so; with one it is filled; once it is withdrawn the next claim is refused.
func TestPopulateAcrossNamespaces(t *testing.T) {
	t.Parallel()
	images, team := newBed(t), newBed(t, framework.Restricted)
	images.importSource("image", images.web.url+"/disk.img")
	images.populate(populated{name: "golden", class: classImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	images.cloneSource("os", "golden")
	images.untilPopulated("golden")

	disk := populated{name: "disk", class: classWaits, size: "64Mi", kind: "VolumeCloneSource", source: "os", from: images.Namespace}
	team.populate(disk)
	team.says("disk", "no ReferenceGrant in namespace "+images.Namespace)
	team.Start(framework.Pod{Name: "user", Script: "true", Claims: []string{"disk"}, User: guest})
	team.untilClaim("disk", "to have a node", func(c *corev1.PersistentVolumeClaim) bool { return c.Annotations[selectedNode] != "" })
	team.idle()
	granted := images.grantTo(team.Namespace)
	team.WaitPhase("user", corev1.PodSucceeded)
	team.untilPopulated("disk")
	team.Delete("user")
	team.begins("disk", image(24))
	images.Wait("nothing of the clone to be left beside its source", patience, func(ctx context.Context) (bool, string) {
		var secrets corev1.SecretList
		if err := images.kube.List(ctx, &secrets, client.InNamespace(images.Namespace)); err != nil {
			return false, err.Error()
		}
		return len(images.workers(ctx)) == 0 && len(secrets.Items) == 0, ""
	})

	if err := images.kube.Delete(images.Context(), granted); err != nil {
		t.Fatal(err)
	}
	disk.name = "late"
	team.populate(disk)
	team.says("late", "no ReferenceGrant in namespace "+images.Namespace)
}

// TestPopulateRestored: claims are saved, deleted while their volumes are kept, and restored. Their data is there and
// nothing is imported again, also if the source is still there to be imported from.
func TestPopulateRestored(t *testing.T) {
	t.Parallel()
	b := newBed(t, framework.Restricted)
	b.importSource("image", b.web.url+"/disk.img")
	b.populate(populated{name: "disk", class: classImmediate, size: "64Mi", kind: "VolumeImportSource", source: "image"})
	saved := b.untilPopulated("disk")
	pv := b.WaitBound("disk")
	b.patchVolume(pv.Name, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	})
	if err := b.kube.Delete(b.Context(), saved); err != nil {
		t.Fatal(err)
	}
	b.Wait("the volume to be released", patience, func(ctx context.Context) (bool, string) {
		var v corev1.PersistentVolume
		err := b.kube.Get(ctx, types.NamespacedName{Name: pv.Name}, &v)
		return err == nil && v.Status.Phase == corev1.VolumeReleased, string(v.Status.Phase)
	})
	before := b.web.requests()

	restored := saved.DeepCopy()
	restored.ObjectMeta = metav1.ObjectMeta{Namespace: saved.Namespace, Name: saved.Name, Labels: saved.Labels, Annotations: saved.Annotations}
	// What Kubernetes noted about the old binding does not hold for the new claim; backup tools leave it out.
	delete(restored.Annotations, "pv.kubernetes.io/bind-completed")
	delete(restored.Annotations, "pv.kubernetes.io/bound-by-controller")
	// The volume still names the claim that was deleted; whoever restores says that the new one may have it.
	b.patchVolume(pv.Name, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID, v.Spec.ClaimRef.ResourceVersion = "", "" })
	b.create(restored)
	b.WaitBound("disk")
	b.begins("disk", image(24))
	b.patchVolume(pv.Name, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	if got := b.workers(b.Context()); len(got) != 0 || b.web.requests() != before {
		t.Errorf("workers %v and %d more requests after the restore", got, b.web.requests()-before)
	}
}

func (b *bed) patchVolume(name string, change func(*corev1.PersistentVolume)) {
	b.T.Helper()
	var v corev1.PersistentVolume
	if err := b.kube.Get(b.Context(), types.NamespacedName{Name: name}, &v); err != nil {
		b.T.Fatal(err)
	}
	before := v.DeepCopy()
	change(&v)
	if err := b.kube.Patch(b.Context(), &v, client.MergeFrom(before)); err != nil {
		b.T.Fatal(err)
	}
}
