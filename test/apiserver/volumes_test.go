//go:build apiserver

package apiserver

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestVolumesOfOthers: whatever the controller believes, it gives no volume to a claim of another namespace, makes no volume but a second one of
// a moved disk that is kept, and deletes none whose data would go with it.
func TestVolumesOfOthers(t *testing.T) {
	installRights(t)
	c, err := client.New(as("berth:berth-controller"), client.Options{Scheme: clientgo.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	volume := func(name string, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "one"}},
			ClaimRef:                      &corev1.ObjectReference{Namespace: team, Name: "disk", UID: "1"}}}
		if change != nil {
			change(pv)
		}
		return pv
	}
	alias := func(pv *corev1.PersistentVolume) {
		pv.Labels, pv.Annotations = map[string]string{"berth.dev/replaces": "x"}, map[string]string{"berth.dev/alias-of": "{}"}
	}
	theirs := volume("theirs", nil)
	create(t, admin, theirs.DeepCopy())
	kept := volume("kept", alias)
	create(t, admin, kept.DeepCopy())
	deletes := volume("deletes", func(pv *corev1.PersistentVolume) {
		alias(pv)
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	create(t, admin, deletes.DeepCopy())
	patch := func(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }
	for what, err := range map[string]error{
		"to another namespace": c.Patch(t.Context(), theirs.DeepCopy(), patch(`{"spec":{"claimRef":{"namespace":"other","name":"loot","uid":"2"}}}`)),
		"to nobody":            c.Patch(t.Context(), theirs.DeepCopy(), patch(`{"spec":{"claimRef":null}}`)),
		"a volume":             c.Create(t.Context(), volume("moved-1", nil)),
		"another name":         c.Create(t.Context(), volume("mine", alias)),
		"one that deletes": c.Create(t.Context(), volume("moved-2", func(pv *corev1.PersistentVolume) {
			alias(pv)
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		})),
		"delete theirs":    c.Delete(t.Context(), theirs.DeepCopy()),
		"delete with data": c.Delete(t.Context(), deletes.DeepCopy()),
	} {
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"to another claim there": c.Patch(t.Context(), theirs.DeepCopy(), patch(fmt.Sprintf(`{"spec":{"claimRef":{"namespace":%q,"name":"next","uid":"2"}}}`, team))),
		"a second of a disk":     c.Create(t.Context(), volume("moved-3", alias)),
		"one of two goes":        c.Delete(t.Context(), kept.DeepCopy()),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
