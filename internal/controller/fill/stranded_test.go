package fill

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// late is a cache that does not have any volume yet.
type late struct{ client.Client }

func (l late) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	if _, volume := into.(*corev1.PersistentVolume); volume {
		key.Name += "-unheard"
	}
	return l.Client.Get(ctx, key, into, o...)
}

func (l late) List(ctx context.Context, into client.ObjectList, o ...client.ListOption) error {
	if _, volumes := into.(*corev1.PersistentVolumeList); volumes {
		return nil
	}
	return l.Client.List(ctx, into, o...)
}

// split returns a clone whose claim is bound on node2, while its source is on node1.
func split(t *testing.T, more ...client.Object) (*filltest.World, Order, *corev1.PersistentVolumeClaim) {
	t.Helper()
	spec := filltest.Spec()
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "disk", UID: "volume-uid"},
		Spec: cdiv1.DataVolumeSpec{PVC: &spec, Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: filltest.Team, Name: "golden"}}}}
	order := OfVolume(v)
	own := order.claim(spec)
	own.UID, own.Status.Phase, own.Annotations[names.MayFill] = "claim-uid", corev1.ClaimBound, string(v.UID)
	objects := append(more, v, filltest.Class(filltest.AtOnce))
	for node, c := range map[string]*corev1.PersistentVolumeClaim{"node2": own, "node1": filltest.Bound(filltest.Team, "golden")} {
		c.Spec.VolumeName = "pvc-" + string(c.UID)
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.Spec.VolumeName}}
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "local.example", VolumeHandle: c.Name}
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
		objects = append(objects, c, pv, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelHostname: node}}})
	}
	return filltest.New(t, filltest.Scene{Objects: objects}), order, own
}

func engine(w *filltest.World, cache client.Reader) *Engine {
	return New(Parts{Reader: cache, Live: w.API, Writer: w.Writer, Clock: w.Clock, Image: "berth", Ask: filltest.Silent})
}

// TestVolumeAheadOfCache: the claims say which volumes they have, and the cache does not have these volumes yet. That must not
// count as proof that one node can use both.
func TestVolumeAheadOfCache(t *testing.T) {
	w, order, _ := split(t)
	s, err := engine(w, late{w.API}).Observe(t.Context(), order)
	w.Must(err)
	if f := s.Facts(); f.Origin != volume.Unready {
		t.Errorf("the source is %s, want %s: a server that it is streamed from", f.Origin, volume.Unready)
	}
}

// TestReservedAheadOfCache: a volume that is reserved for the claim may hold data. A reservation that the cache does not have yet
// must still prevent writes.
func TestReservedAheadOfCache(t *testing.T) {
	w, order, own := split(t)
	var pv corev1.PersistentVolume
	w.Must(w.API.Get(t.Context(), client.ObjectKey{Name: own.Spec.VolumeName}, &pv))
	pv.Spec.ClaimRef.UID = "" // as it was reserved
	w.Must(w.API.Update(t.Context(), &pv))
	s, err := engine(w, late{w.API}).Observe(t.Context(), order)
	w.Must(err)
	if f := s.Facts(); f.Data != volume.Unknown {
		t.Errorf("its contents are %s, want %s", f.Data, volume.Unknown)
	}
}

// TestListedAheadOfCache: who asks for reserved volumes to be kept has them listed on the claim, also one that was made a moment ago.
func TestListedAheadOfCache(t *testing.T) {
	spec := filltest.Spec()
	v := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: filltest.Team, Name: "disk", UID: "volume-uid", Annotations: map[string]string{names.CheckStatic: ""}},
		Spec: cdiv1.DataVolumeSpec{PVC: &spec, Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}}}
	reserved := func(name, claim string, uid types.UID) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: filltest.Team, Name: claim, UID: uid}
		return pv
	}
	w := filltest.New(t, filltest.Scene{Objects: []client.Object{filltest.Class(filltest.AtOnce), v,
		reserved("restored", "disk", ""), reserved("left", "disk", "uid-of-one-that-is-gone"), reserved("other", "another", "")}})
	e := engine(w, late{w.API})
	s, err := e.Observe(t.Context(), OfVolume(v))
	w.Must(err)
	_, err = e.Act(t.Context(), s)
	w.Must(err)
	c := filltest.Get[corev1.PersistentVolumeClaim](w, filltest.Team, "disk")
	if got := c.Annotations[names.VolumeList]; got != `["restored"]` {
		t.Errorf("the claim lists %s", got)
	}
}

// TestStrandedWorker: a worker that was made to read its source beside its claim, and that no node can have because they are on
// different ones, makes room for one that reads a stream. One that waits for anything else stays.
func TestStrandedWorker(t *testing.T) {
	for name, c := range map[string]struct {
		claims []string
		reason string
		goes   bool
	}{
		"reads beside, no node":       {claims: []string{"disk", "golden"}, reason: corev1.PodReasonUnschedulable, goes: true},
		"reads beside, not tried yet": {claims: []string{"disk", "golden"}},
		"reads a stream, no node":     {claims: []string{"disk"}, reason: corev1.PodReasonUnschedulable},
	} {
		t.Run(name, func(t *testing.T) {
			_, order, own := split(t)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: filltest.Team, Name: render.WorkerName(render.RoleImport, "disk"), OwnerReferences: []metav1.OwnerReference{order.Owner},
				Labels: map[string]string{render.LabelClaimUID: string(own.UID)},
			}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
			for _, claim := range c.claims {
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
				}})
			}
			if c.reason != "" {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: c.reason}}
			}
			w, order, _ := split(t, pod)
			e := engine(w, w.API)
			for range 2 {
				s, err := e.Observe(t.Context(), order)
				w.Must(err)
				_, err = e.Act(t.Context(), s)
				w.Must(err)
			}
			names := w.Left()["pods"].([]string)
			streams := len(names) == 1 && names[0] != pod.Namespace+"/"+pod.Name
			if streams != c.goes {
				t.Errorf("pods are %v", names)
			}
		})
	}
}
