package datavolume

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestDeletedVolumeLeavesNothingElsewhere: what a clone has in its source's namespace cannot be owned by the volume; it
// must be gone before the volume is.
func TestDeletedVolumeLeavesNothingElsewhere(t *testing.T) {
	w := newWorld(t, scenario{
		objects: []client.Object{class(storagev1.VolumeBindingImmediate), golden("images")}, volume: cloneOf("images"),
	})
	ctx := context.Background()
	step := func() {
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: volumeName}})
		w.must(err)
	}
	server := func() *corev1.Pod {
		p, err := get[corev1.Pod](ctx, w.api, "images", "volume-uid-source-pod")
		w.must(err)
		return p
	}
	for range 10 {
		step()
		if server() != nil {
			break
		}
		w.bind(nil)
	}
	if server() == nil {
		t.Fatal("no server was started")
	}
	w.must(w.api.Delete(ctx, w.volume()))
	if w.volume() == nil {
		t.Fatal("the volume is gone before its server")
	}
	step()
	var secrets corev1.SecretList
	w.must(w.api.List(ctx, &secrets))
	if server() != nil || len(secrets.Items) != 0 || w.volume() != nil {
		t.Errorf("left: server %v, %d secrets, volume %v", server() != nil, len(secrets.Items), w.volume() != nil)
	}
}
