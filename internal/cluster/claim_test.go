package cluster

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/state"
)

// TestReportClaimSaysNewsOnce: also while the cache does not know yet what was said.
func TestReportClaimSaysNewsOnce(t *testing.T) {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "1"}}
	w, api, recorder := newWriter(t, c)
	ctx := context.Background()
	stale := c.DeepCopy()
	if err := api.Get(ctx, client.ObjectKeyFromObject(c), stale); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		marks := Marks{Annotations: map[string]string{"mine": "1"}}
		if err := w.ReportClaim(ctx, stale, marks, Status{State: state.Of(state.PopulationWaits), Progress: "N/A"}); err != nil {
			t.Fatal(err)
		}
		stale.ResourceVersion += "0" // another writer; what we wrote is not in it yet
	}
	if got := len(recorder.Events); got != 1 {
		t.Errorf("%d events for one piece of news", got)
	}
	var now corev1.PersistentVolumeClaim
	if err := api.Get(ctx, client.ObjectKeyFromObject(c), &now); err != nil {
		t.Fatal(err)
	}
	if a := now.Annotations; a["mine"] != "1" || a[AnnState] != string(state.PopulationWaits) || a[AnnBound] != "false" {
		t.Errorf("annotations are %v", a)
	}
}

// TestRebind: the volume is given away and marked in one write, and only as it was seen.
func TestRebind(t *testing.T) {
	to := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "1"}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "prime-1", UID: "2"},
	}}
	w, api, _ := newWriter(t, to, pv)
	ctx := context.Background()
	var seen corev1.PersistentVolume
	if err := api.Get(ctx, client.ObjectKeyFromObject(pv), &seen); err != nil {
		t.Fatal(err)
	}
	stale := seen.DeepCopy()
	elsewhere := to.DeepCopy()
	elsewhere.Namespace = "other"
	for name, err := range map[string]error{
		"another claim holds it":            w.Rebind(ctx, &seen, "3", to),
		"nobody says who holds it":          w.Rebind(ctx, &seen, "", to),
		"the claim is in another namespace": w.Rebind(ctx, &seen, "2", elsewhere),
		"no claim holds the volume":         w.Rebind(ctx, &corev1.PersistentVolume{}, "2", to),
	} {
		if !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := w.Rebind(ctx, &seen, "2", to); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(ctx, client.ObjectKeyFromObject(pv), &seen); err != nil {
		t.Fatal(err)
	}
	if seen.Spec.ClaimRef.UID != "1" || seen.Spec.ClaimRef.Name != "disk" || seen.Annotations[AnnFilledFor] != "1" {
		t.Errorf("the volume is %+v, %v", seen.Spec.ClaimRef, seen.Annotations)
	}
	if err := w.Rebind(ctx, stale, "2", to); err == nil {
		t.Error("a volume that changed meanwhile was given away")
	}
}
