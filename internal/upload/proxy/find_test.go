package proxy

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/token"
)

// TestFinder: the worker of a claim is found where its token says, and nowhere else.
func TestFinder(t *testing.T) {
	claim := func(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "disk", UID: "one", Annotations: map[string]string{}}}
		change(c)
		return c
	}
	plain := claim(func(*corev1.PersistentVolumeClaim) {})
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "disk", UID: "one", Controller: ptr.To(true)}}}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7", Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}}
		change(p)
		return p
	}
	as := func(*corev1.Pod) {}
	bare := Owner{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "disk", UID: "one"}
	there := Worker{Address: "10.0.0.7:8443", Name: "cdi-upload-disk.team.upload.berth.dev", Owner: bare}
	for name, row := range map[string]struct {
		objects []runtime.Object
		want    Worker
		err     error
	}{
		"there": {objects: []runtime.Object{plain, pod("cdi-upload-disk", as)}, want: there},
		"of a volume": {objects: []runtime.Object{claim(func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume", Name: "dv", UID: "two", Controller: ptr.To(true)}}
		}), pod("cdi-upload-disk", func(p *corev1.Pod) { p.OwnerReferences[0].Kind, p.OwnerReferences[0].UID = "DataVolume", "two" }),
		}, want: Worker{Address: there.Address, Name: there.Name,
			Owner: Owner{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume", Name: "dv", UID: "two"}}},
		"of the claim's prime": {objects: []runtime.Object{
			claim(func(c *corev1.PersistentVolumeClaim) { c.Annotations[annPrime] = "prime-one" }), pod("cdi-upload-prime-one", as),
		}, want: Worker{Address: there.Address, Name: "cdi-upload-prime-one.team.upload.berth.dev", Owner: bare}},
		"no claim": {err: ErrMissing},
		"a later claim of the name": {objects: []runtime.Object{
			claim(func(c *corev1.PersistentVolumeClaim) { c.UID = "later" }), pod("cdi-upload-disk", as)}, err: ErrOther},
		"a claim of another namespace": {objects: []runtime.Object{
			claim(func(c *corev1.PersistentVolumeClaim) { c.Namespace = "other" })}, err: ErrMissing},
		"it is full": {objects: []runtime.Object{
			claim(func(c *corev1.PersistentVolumeClaim) { c.Annotations[annPodPhase] = string(corev1.PodSucceeded) }),
			pod("cdi-upload-disk", as)}, err: ErrFinished},
		"no worker":              {objects: []runtime.Object{plain}, err: ErrNotReady},
		"another's":              {objects: []runtime.Object{plain, pod("cdi-upload-other", as)}, err: ErrNotReady},
		"nobody's, of its name":  {objects: []runtime.Object{plain, pod("cdi-upload-disk", func(p *corev1.Pod) { p.OwnerReferences = nil })}, err: ErrNotReady},
		"another's, of its name": {objects: []runtime.Object{plain, pod("cdi-upload-disk", func(p *corev1.Pod) { p.OwnerReferences[0].UID = "two" })}, err: ErrNotReady},
		"it has no address":      {objects: []runtime.Object{plain, pod("cdi-upload-disk", func(p *corev1.Pod) { p.Status.PodIP = "" })}, err: ErrNotReady},
		"it is not ready": {objects: []runtime.Object{plain, pod("cdi-upload-disk", func(p *corev1.Pod) {
			p.Status.Conditions[0].Status = corev1.ConditionFalse
		})}, err: ErrNotReady},
		"it does not say whether it is ready": {objects: []runtime.Object{plain, pod("cdi-upload-disk", func(p *corev1.Pod) {
			p.Status.Conditions = nil
		})}, err: ErrNotReady},
		"it is leaving": {objects: []runtime.Object{plain, pod("cdi-upload-disk", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = ptr.To(metav1.Now()), []string{"somebody/waits"}
		})}, err: ErrNotReady},
	} {
		t.Run(name, func(t *testing.T) {
			want := token.Claim{Namespace: "team", Name: "disk", UID: "one"}
			got, err := Finder(fake.NewClientset(row.objects...))(t.Context(), want)
			if row.err == nil {
				row.want.Claim = want
			}
			if diff := cmp.Diff(row.want, got); !errors.Is(err, row.err) || diff != "" {
				t.Errorf("error %v, want %v\n%s", err, row.err, diff)
			}
		})
	}
}
