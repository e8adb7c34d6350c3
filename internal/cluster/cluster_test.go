package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-vm/berth/internal/state"
)

func volume() *cdiv1.DataVolume {
	return &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "1"}}
}

func newWriter(t *testing.T, objects ...client.Object) (*Writer, client.Client, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, cdiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&cdiv1.DataVolume{}).WithObjects(objects...).Build()
	recorder := events.NewFakeRecorder(10)
	return New(c, recorder, clocktest.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))), c, recorder
}

func status(reason state.Reason) Status {
	s := state.Of(reason)
	s.Claim = "disk"
	return Status{State: s, Bound: true, Progress: "N/A"}
}

func TestReportSaysNewsOnce(t *testing.T) {
	w, c, recorder := newWriter(t, volume())
	ctx := context.Background()
	stale := volume() // as a cache that never catches up would have it
	if err := c.Get(ctx, client.ObjectKeyFromObject(stale), stale); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := w.Report(ctx, stale, status(state.Import.Reason(state.InProgress))); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(recorder.Events); got != 1 {
		t.Errorf("%d events for one piece of news", got)
	}
	var now cdiv1.DataVolume
	if err := c.Get(ctx, client.ObjectKeyFromObject(stale), &now); err != nil {
		t.Fatal(err)
	}
	if now.Status.Phase != cdiv1.ImportInProgress || len(now.Status.Conditions) != 3 {
		t.Errorf("status is %+v", now.Status)
	}
	if err := w.Report(ctx, &now, status(state.Import.Reason(state.Succeeded))); err != nil {
		t.Fatal(err)
	}
	<-recorder.Events
	if event := <-recorder.Events; !strings.Contains(event, "Normal ImportSucceeded") {
		t.Errorf("event %q", event)
	}
}

// TestReportOfAnotherVersion: another client wrote to the volume before our report, and the cache has that version, without the
// report: no event is sent a second time.
func TestReportOfAnotherVersion(t *testing.T) {
	v := volume()
	v.UID = "uid"
	w, _, recorder := newWriter(t, v)
	for _, version := range []string{"", "7"} {
		stale := v.DeepCopy()
		stale.ResourceVersion = version
		if err := w.Report(t.Context(), stale, status(state.Import.Reason(state.InProgress))); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(recorder.Events); got != 1 {
		t.Errorf("%d events for one piece of news", got)
	}
}

// TestDeleteSparesASuccessor: the fake client knows no preconditions, so what the server is asked is looked at; that
// it does as asked is its own business.
func TestDeleteSparesASuccessor(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "worker", UID: "seen"}}
	_, c, recorder := newWriter(t, pod)
	var asked client.DeleteOptions
	watched := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, obj client.Object, options ...client.DeleteOption) error {
			asked.ApplyOptions(options)
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, obj.GetName(), errors.New("another UID"))
		},
	})
	w := New(watched, recorder, clocktest.NewFakePassiveClock(time.Time{}))
	if err := w.Delete(context.Background(), pod); err != nil {
		t.Errorf("a pod that is gone and has a successor: %v", err)
	}
	if asked.Preconditions == nil || asked.Preconditions.UID == nil || *asked.Preconditions.UID != "seen" {
		t.Errorf("deleted with %+v", asked.Preconditions)
	}
}

func TestMarkKeepsWhatOthersWrote(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "disk", UID: "1", Annotations: map[string]string{"theirs": "kept"},
	}}
	w, c, _ := newWriter(t, claim)
	ctx := context.Background()
	for _, ours := range []map[string]string{{"ours": "1", "once": "x"}, {"ours": "2"}} {
		if err := w.Mark(ctx, claim, Marks{Annotations: ours}); err != nil {
			t.Fatal(err)
		}
	}
	var now corev1.PersistentVolumeClaim
	if err := c.Get(ctx, client.ObjectKeyFromObject(claim), &now); err != nil {
		t.Fatal(err)
	}
	if a := now.Annotations; a["theirs"] != "kept" || a["ours"] != "2" || a["once"] != "" {
		t.Errorf("annotations are %v", a)
	}
}

func TestExceededQuota(t *testing.T) {
	pods := schema.GroupResource{Resource: "persistentvolumeclaims"}
	quota := apierrors.NewForbidden(pods, "disk", errors.New("exceeded quota: team, requested: 2Gi, used: 0, limited: 1Gi"))
	if got, ok := ExceededQuota(quota); !ok || !strings.HasPrefix(got, "exceeded quota: team, requested: 2Gi") {
		t.Errorf("%q, %t", got, ok)
	}
	if _, ok := ExceededQuota(apierrors.NewForbidden(pods, "disk", errors.New("no rights"))); ok {
		t.Error("any refusal is taken for a quota")
	}
}
