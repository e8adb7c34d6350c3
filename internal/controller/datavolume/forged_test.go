package datavolume

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

var request = ctrl.Request{NamespacedName: types.NamespacedName{Namespace: filltest.Team, Name: volumeName}}

// TestAWorkerThatIsNone: a pod that has the name and the labels of the worker, and a report that everything is done, fills
// nothing, is not deleted, and is named as what is in the way.
func TestAWorkerThatIsNone(t *testing.T) {
	report, err := json.Marshal(filltest.Done())
	if err != nil {
		t.Fatal(err)
	}
	v := newVolume(&cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://images/disk"}})
	spec := filltest.Spec()
	order := fill.OfVolume(v)
	c := render.Claim(metav1.ObjectMeta{Namespace: filltest.Team, Name: volumeName, UID: "claim-uid",
		OwnerReferences: []metav1.OwnerReference{order.Owner}}, spec)
	c.Annotations, c.Status.Phase = map[string]string{clonesource.AnnMayFill: string(order.UID)}, corev1.ClaimBound
	forged := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: render.WorkerName(render.RoleImport, volumeName), UID: "forged",
			Labels: map[string]string{render.LabelClaimUID: "claim-uid", render.LabelVolumeUID: "volume-uid", render.LabelApp: render.App}},
		Status: corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: string(report)}}}}},
	}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), v, c, forged}})
	r := build(w)
	for range 5 {
		_, err := r.Reconcile(context.Background(), request)
		w.Must(err)
	}
	now := volumeIn(w)
	said := ""
	for _, c := range now.Status.Conditions {
		said += c.Message + "\n"
	}
	if now.Status.Phase == cdiv1.Succeeded || !strings.Contains(said, forged.Name+": a pod of that name exists and is not ours: delete it") {
		t.Errorf("phase %s, said %q", now.Status.Phase, said)
	}
	if p := filltest.Get[corev1.Pod](w, filltest.Team, forged.Name); p == nil {
		t.Error("a pod that is not ours was deleted")
	}
}

// TestADecoyDoesNotHideTheServer: what a clone left in the source's namespace goes, although pods elsewhere pretend to be it.
func TestADecoyDoesNotHideTheServer(t *testing.T) {
	for _, decoys := range []string{"aaa", "zzz"} { // before and after the real one, however they are sorted
		t.Run(decoys, func(t *testing.T) {
			v := cloneOf("golden")
			// the source is a reference that leads elsewhere by now, so only the pods themselves say where they are
			v.Spec.Source.PVC.Namespace = decoys
			v.Finalizers, v.DeletionTimestamp = []string{fill.OfVolume(v).Finalizer}, &metav1.Time{Time: metav1.Now().Time}
			labels := render.Labels(render.RoleServe)
			labels[render.LabelVolumeUID] = "volume-uid"
			server := func(namespace, name string) *corev1.Pod {
				return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "server-uid", Labels: labels}}
			}
			keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "volume-uid-source-tls"}}
			w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), v, keys,
				server("golden", "volume-uid-source-pod"), server(decoys, "volume-uid-source-pod"), server(decoys, "anything")}})
			_, err := build(w).Reconcile(context.Background(), request)
			w.Must(err)
			if p := filltest.Get[corev1.Pod](w, "golden", "volume-uid-source-pod"); p != nil {
				t.Error("the server is still there")
			}
			if s := filltest.Get[corev1.Secret](w, "golden", keys.Name); s != nil {
				t.Error("its keys are still there")
			}
			if p := filltest.Get[corev1.Pod](w, decoys, "anything"); p == nil {
				t.Error("a pod that has not the name of one of ours was deleted")
			}
			if v := volumeIn(w); v != nil && len(v.Finalizers) > 0 {
				t.Errorf("the volume is kept by %v", v.Finalizers)
			}
		})
	}
}

// TestAVolumeThatSlippedAway: its owner took the finalizer off, and what it left beside its source goes all the same; what is
// another's of the same name stays.
func TestAVolumeThatSlippedAway(t *testing.T) {
	server := func(uid string) *corev1.Pod {
		labels := render.Labels(render.RoleServe)
		labels[render.LabelVolumeUID] = uid
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: uid + "-source-pod", UID: types.UID("pod-" + uid), Labels: labels,
			Annotations: map[string]string{names.Serves: filltest.Team + "/" + volumeName}}}
	}
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "gone-source-tls"}}
	misnamed := server("gone")
	misnamed.Name = "anything"
	claim := filltest.Bound(filltest.Team, volumeName)
	claim.UID = "claim-uid"
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{server("gone"), keys, misnamed, claim, server("claim-uid")}})
	_, err := build(w).Reconcile(context.Background(), request)
	w.Must(err)
	for name, left := range map[string]bool{"gone-source-pod": false, "anything": true, "claim-uid-source-pod": true} {
		if p := filltest.Get[corev1.Pod](w, "golden", name); (p != nil) != left {
			t.Errorf("pod %s is there: %v", name, p != nil)
		}
	}
	if s := filltest.Get[corev1.Secret](w, "golden", keys.Name); s != nil {
		t.Error("its keys are still there")
	}
}

// TestAForgedServerOfNobody: a pod says to be the server of a clone that is under way, and to work for a volume that is not there. The keys of
// the clone's client stay.
func TestAForgedServerOfNobody(t *testing.T) {
	labels := render.Labels(render.RoleServe)
	labels[render.LabelVolumeUID] = "victim-uid"
	forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: "victim-uid-source-pod", UID: "forged", Labels: labels,
		Annotations: map[string]string{names.Serves: filltest.Team + "/" + volumeName}}}
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "victim-uid-target-tls"}}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{forged, keys}})
	_, err := build(w).Reconcile(context.Background(), request)
	w.Must(err)
	if s := filltest.Get[corev1.Secret](w, keys.Namespace, keys.Name); s == nil {
		t.Error("the keys of somebody's clone were deleted")
	}
	if p := filltest.Get[corev1.Pod](w, forged.Namespace, forged.Name); p != nil {
		t.Error("a server that works for nobody stays")
	}
}
