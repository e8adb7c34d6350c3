package cluster

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOwned: a pod is an owner's by its controller's UID, never by its name; one that is in the way of ours is said to be.
func TestOwned(t *testing.T) {
	ctx := context.Background()
	mine := metav1.OwnerReference{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume", Name: "disk", UID: "1", Controller: new(true)}
	pod := func(owners ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "importer-disk", OwnerReferences: owners}}
	}
	former, loose := mine, mine
	former.UID, loose.Controller = "0", nil
	for name, row := range map[string]struct {
		there *corev1.Pod
		ours  bool
	}{
		"ours":                     {pod(mine), true},
		"nobody's":                 {there: pod()},
		"an earlier volume's":      {there: pod(former)},
		"ours but not controlled":  {there: pod(loose)},
		"ours too, controlled not": {there: pod(loose, former)},
	} {
		t.Run(name, func(t *testing.T) {
			w, api, _ := newWriter(t, row.there)
			got, err := Owned[corev1.Pod](ctx, api, "1", "ns", "importer-disk")
			if err != nil || (got != nil) != row.ours {
				t.Errorf("got %v, %v", got, err)
			}
			if err := w.Create(ctx, pod(mine)); errors.Is(err, ErrTaken) == row.ours {
				t.Errorf("made again: %v", err)
			}
		})
	}
	_, api, _ := newWriter(t)
	if got, err := Owned[corev1.Pod](ctx, api, "1", "ns", "importer-disk"); got != nil || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
}
