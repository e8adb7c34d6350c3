package requeue

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestRoomier(t *testing.T) {
	quota := func(hard, used string) *corev1.ResourceQuota {
		list := func(q string) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse(q)}
		}
		return &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: list(hard), Used: list(used)}}
	}
	for name, row := range map[string]struct {
		old, now *corev1.ResourceQuota
		want     bool
	}{
		"raised":      {quota("1Gi", "1Gi"), quota("2Gi", "1Gi"), true},
		"freed":       {quota("1Gi", "1Gi"), quota("1Gi", "512Mi"), true},
		"filled up":   {quota("1Gi", "512Mi"), quota("1Gi", "1Gi"), false},
		"not changed": {quota("1Gi", "1Gi"), quota("1Gi", "1Gi"), false},
	} {
		if got := Roomier().Update(event.UpdateEvent{ObjectOld: row.old, ObjectNew: row.now}); got != row.want {
			t.Errorf("%s: %t, want %t", name, got, row.want)
		}
	}
}

// user returns a pod with claims.
func user(claims ...string) *corev1.Pod {
	p := &corev1.Pod{}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		}})
	}
	return p
}

// TestUsers: objects that wait for a claim, or read it, are requeued when a pod begins to use it and when it ends, once.
func TestUsers(t *testing.T) {
	running, ended, queued := user("golden", "disk"), user("golden", "disk"), user("golden", "disk")
	running.Spec.NodeName, ended.Spec.NodeName = "node1", "node1"
	running.Status.Phase, ended.Status.Phase = corev1.PodRunning, corev1.PodSucceeded
	hears := BeginsOrEnds()
	for name, c := range map[string]struct{ got, want bool }{
		"it ends":    {hears.Update(event.UpdateEvent{ObjectOld: running, ObjectNew: ended}), true},
		"it goes":    {hears.Delete(event.DeleteEvent{Object: running}), true},
		"it comes":   {hears.Create(event.CreateEvent{Object: queued}), false},
		"it is seen": {hears.Create(event.CreateEvent{Object: running}), true},
		"it begins":  {hears.Update(event.UpdateEvent{ObjectOld: queued, ObjectNew: running}), true},
		"it runs on": {hears.Update(event.UpdateEvent{ObjectOld: running, ObjectNew: running}), false},
		"it stays":   {hears.Update(event.UpdateEvent{ObjectOld: ended, ObjectNew: ended}), false},
	} {
		if c.got != c.want {
			t.Errorf("%s: heard %t, want %t", name, c.got, c.want)
		}
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	Users(func(_ context.Context, obj client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
	}).Delete(t.Context(), event.DeleteEvent{Object: running}, queue)
	if queue.Len() != 2 {
		t.Errorf("%d claims are looked at, want both", queue.Len())
	}
}
