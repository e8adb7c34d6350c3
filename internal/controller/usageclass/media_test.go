package usageclass

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/testing/faults"
	"github.com/berth-vm/berth/internal/usagetype"
	"github.com/berth-vm/berth/pkg/claim"
)

// TestSameWord: the driver's pods and classes are annotated alike.
func TestSameWord(t *testing.T) {
	if usagetype.Annotation != claim.UsageTypePrefix {
		t.Errorf("%s and %s", usagetype.Annotation, claim.UsageTypePrefix)
	}
}

// TestClasses: each type that some node offers has a class, made once whatever write fails or is the last, and no class that is
// there is changed.
func TestClasses(t *testing.T) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.NodeList{})
	scheme.AddKnownTypes(storagev1.SchemeGroupVersion, &storagev1.StorageClass{}, &storagev1.StorageClassList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, storagev1.SchemeGroupVersion)
	node := func(name string, types ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{usagetype.Driver + "/node": name, usagetype.Topology + "off": "false"}}}
		for _, u := range types {
			n.Labels[usagetype.Topology+u] = "true"
		}
		return n
	}
	own := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "own", Annotations: map[string]string{claim.UsageTypePrefix + "mine": "true"}}}
	other := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: classPrefix + "immediate"}, Provisioner: usagetype.Driver}
	for at := range 3 {
		for _, kind := range faults.Kinds {
			var h faults.Injector
			h.At, h.Kind = at, kind
			api := fake.NewClientBuilder().WithScheme(scheme).
				WithObjects(node("one", "fast", "mine"), node("two", "fast", "slow", "immediate"), node("three"), own.DeepCopy(), other.DeepCopy()).Build()
			r := &Reconciler{reader: api, cluster: cluster.New(h.Client(api, func(client.Object) error { return nil }), events.NewFakeRecorder(100),
				clocktest.NewFakePassiveClock(time.Unix(1e9, 0)))}
			for range 3 {
				for _, name := range []string{"fast", "slow", "mine", "off", "gone", "immediate"} {
					_, err := r.reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
					if err != nil && !faults.Caused(err) {
						t.Fatal(err)
					}
				}
			}
			var list storagev1.StorageClassList
			if err := api.List(context.Background(), &list); err != nil {
				t.Fatal(err)
			}
			got := map[string]storagev1.StorageClass{}
			for _, c := range list.Items {
				got[c.Name] = c
			}
			fast := got["localdisk-fast"]
			if len(got) != 4 || fast.Parameters[usagetype.Parameter] != "fast" || len(fast.AllowedTopologies) != 1 || got["localdisk-slow"].Name == "" ||
				got["localdisk-immediate"].Parameters != nil {
				t.Errorf("write %d %s: there are %+v", at, kind, got)
			}
			if c := claim.ForUsage(list.Items, "fast"); c == nil || c.Name != "localdisk-fast" {
				t.Errorf("write %d %s: type fast is in %v", at, kind, c)
			}
		}
	}
}
