package podend

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
)

const finalizer = "berth.dev/test-end"

func running() []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

func terminated() []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}}}
}

// TestKept: a pod is kept until its end is certain, and no longer.
func TestKept(t *testing.T) {
	now := metav1.NewTime(time.Now())
	node := func(taints ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
		for _, k := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k, Effect: corev1.TaintEffectNoExecute})
		}
		return n
	}
	for _, c := range []struct {
		name  string
		pod   func(*corev1.Pod)
		node  *corev1.Node // nil: it was deleted
		stale bool         // the cache does not have the node yet
		kept  bool
	}{
		{"it runs", func(p *corev1.Pod) { p.Status.ContainerStatuses = running() }, node(), false, true},
		{"it is deleted by force and runs", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, new(int64(0))
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodRunning, running()
		}, node(), false, true},
		{"its node does not answer", func(p *corev1.Pod) {
			p.DeletionTimestamp = &now
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodRunning, running()
		}, node(corev1.TaintNodeUnreachable), false, true},
		{"somebody calls it failed, and a container runs", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodFailed, running()
		}, node(), false, true},
		{"an init container runs", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.InitContainerStatuses = corev1.PodFailed, running()
		}, node(), false, true},
		{"the cache does not know its node yet", func(p *corev1.Pod) { p.DeletionTimestamp = &now }, node(), true, true},
		{"it waits for a node", func(p *corev1.Pod) { p.Spec.NodeName = "" }, node(), false, true},

		{"it has ended", func(p *corev1.Pod) { p.Status.Phase, p.Status.ContainerStatuses = corev1.PodSucceeded, terminated() }, node(), false, false},
		{"it was deleted and has ended", func(p *corev1.Pod) {
			p.DeletionTimestamp = &now
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodFailed, terminated()
		}, node(), false, false},
		{"it was deleted before it had a node", func(p *corev1.Pod) { p.DeletionTimestamp, p.Spec.NodeName = &now, "" }, node(), false, false},
		{"its node is out of service", func(p *corev1.Pod) {
			p.DeletionTimestamp = &now
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodRunning, running()
		}, node(corev1.TaintNodeOutOfService), false, false},
		{"its node was deleted", func(p *corev1.Pod) {
			p.DeletionTimestamp = &now
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodRunning, running()
		}, nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", UID: "uid", Finalizers: []string{finalizer, "other.example/x"}}}
			p.Spec.NodeName = "node1"
			c.pod(p)
			objects := []client.Object{p}
			if c.node != nil {
				objects = append(objects, c.node)
			}
			live := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).Build()
			var cache client.Reader = live
			if c.stale {
				cache = fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(p.DeepCopy()).Build()
			}
			before := 0
			k := &Keeper{Reader: cache, Live: live, Finalizer: finalizer,
				Cluster: cluster.New(live, events.NewFakeRecorder(10), clocktest.NewFakePassiveClock(time.Now())),
				Before: func(_ context.Context, _ *corev1.Pod, letGo func() error) error {
					if before++; before == 1 {
						return errors.New("not yet")
					}
					return letGo()
				}}
			req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)}
			for n := range 2 { // the first time, what is to be done before fails
				_, err := k.Reconcile(t.Context(), req)
				if (err != nil) != (n == 0 && !c.kept) {
					t.Fatalf("try %d: %v", n, err)
				}
				got, err := cluster.Get[corev1.Pod](t.Context(), live, "team", "p")
				if err != nil || got == nil {
					t.Fatalf("%v %v", got, err)
				}
				if kept := slices.Contains(got.Finalizers, finalizer); kept != (c.kept || n == 0) {
					t.Errorf("try %d: kept is %v", n, kept)
				}
				if !slices.Contains(got.Finalizers, "other.example/x") {
					t.Error("somebody else's finalizer was taken away")
				}
			}
		})
	}
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPodsOf: of a node that goes, the pods that are kept on it are looked at, and no others.
func TestPodsOf(t *testing.T) {
	pod := func(name, node string, finalizers ...string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Finalizers: finalizers}, Spec: corev1.PodSpec{NodeName: node}}
	}
	b := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(
		pod("kept", "node1", finalizer), pod("free", "node1"), pod("elsewhere", "node2", finalizer))
	for _, i := range cacheindex.All() {
		b = b.WithIndex(i.Object, i.Field, i.Of)
	}
	due := (&Keeper{Reader: b.Build(), Finalizer: finalizer}).podsOf(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}})
	if len(due) != 1 || due[0].Name != "kept" {
		t.Errorf("looked at %v", due)
	}
}
