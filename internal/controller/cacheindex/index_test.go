package cacheindex

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
)

func pod(labels map[string]string) *corev1.Pod {
	needs := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	claim := func(name string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels, Annotations: map[string]string{"k": "v"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Spec: corev1.PodSpec{
			NodeName: "node1", NodeSelector: map[string]string{"disk": "fast"}, Volumes: []corev1.Volume{claim("one"), {Name: "token"}, claim("two")},
			Containers: []corev1.Container{{Name: "main", Resources: needs, Env: []corev1.EnvVar{{Name: "A", Value: "B"}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
	}
}

// TestTrim: of a pod of others what is looked at is left, and nothing else; a pod of ours is left as it is.
func TestTrim(t *testing.T) {
	got, err := Trim(pod(map[string]string{"app": "other"}))
	if err != nil {
		t.Fatal(err)
	}
	want := pod(map[string]string{"app": "other"})
	want.Annotations, want.ManagedFields = nil, nil
	want.Spec.Volumes = slices.Delete(want.Spec.Volumes, 1, 2)
	want.Spec.Containers[0].Env = nil
	want.Status.PodIP = ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a pod of others (-want +got):\n%s", diff)
	}
	for _, labels := range []map[string]string{render.Labels(render.RoleImport), {render.LabelMachine: "virt-launcher"}} {
		want := pod(labels)
		want.ManagedFields = nil
		if got, err := Trim(pod(labels)); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("a pod of ours: %v\n%s", err, cmp.Diff(want, got))
		}
	}
	if got, err := Trim(&corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{}}}}); err != nil || got.(*corev1.Node).ManagedFields != nil {
		t.Errorf("a node: %v, %v", got, err)
	}
}

// TestIndexes: pods are found by their claims, their node, the object they were made for and the object they serve.
func TestIndexes(t *testing.T) {
	p := pod(map[string]string{render.LabelVolumeUID: "uid", render.LabelComponent: render.RoleServe})
	p.Annotations[names.Serves] = "team/disk"
	want := map[string][]string{PodClaim: {"one", "two"}, PodNode: {"node1"}, VolumeUID: {"uid"}, PodServes: {"team/disk"}}
	for _, i := range All() {
		if _, isPod := i.Object.(*corev1.Pod); isPod && !slices.Equal(i.Of(p), want[i.Field]) {
			t.Errorf("%s of the pod is %v, want %v", i.Field, i.Of(p), want[i.Field])
		}
	}
	for _, i := range All() {
		if _, isPod := i.Object.(*corev1.Pod); isPod && len(i.Of(&corev1.Pod{})) != 0 {
			t.Errorf("%s of an empty pod is %v", i.Field, i.Of(&corev1.Pod{}))
		}
	}
}
