package claimusers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-vm/berth/internal/controller/cacheindex"
)

func claim(namespace, name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name)},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
}

func volume(name, handle, namespace, of string, uid types.UID) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: handle}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: of, UID: uid}
	return pv
}

func pod(namespace, name, of string, phase corev1.PodPhase, ended time.Time) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}, Status: corev1.PodStatus{Phase: phase}}
	p.Spec.NodeName = "node1"
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: of}}}}
	if !ended.IsZero() {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(ended)}}}}
	}
	return p
}

// TestByTheDisk: the users of a claim are the pods that have its disk, through whatever claim of whatever namespace; a later claim of the
// name that the disk's volume was bound to is another.
func TestByTheDisk(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	b := fake.NewClientBuilder().WithObjects(
		claim("a", "disk", "one"), volume("one", "h", "a", "disk", "a-disk"), pod("a", "own", "disk", corev1.PodRunning, time.Time{}),
		claim("b", "same", "two"), volume("two", "h", "b", "same", "b-same"), pod("b", "other", "same", corev1.PodRunning, time.Time{}),
		claim("b", "later", "four"), volume("three", "h", "b", "later", "earlier"), pod("b", "unconcerned", "later", corev1.PodRunning, time.Time{}),
		volume("four", "i", "b", "later", "b-later"),
		pod("a", "ended-before", "disk", corev1.PodSucceeded, at.Add(-time.Minute)), pod("b", "ended-after", "same", corev1.PodFailed, at.Add(time.Minute)),
	)
	for _, i := range cacheindex.All() {
		b = b.WithIndex(i.Object, i.Field, i.Of)
	}
	api := b.Build()
	of, err := Of(t.Context(), api, claim("a", "disk", "one"))
	if got := names(of); err != nil || got != "[other own]" {
		t.Errorf("users are %s, %v", got, err)
	}
	since, err := Since(t.Context(), api, api, claim("a", "disk", "one"), at)
	if got := names(since); err != nil || got != "[ended-after other own]" {
		t.Errorf("users since are %s, %v", got, err)
	}
}

func names(pods []*corev1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}
