package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/testing/dependencies"
)

// place returns where the pod of that UID waits to be introduced.
func place(t *testing.T, dir, pod string) string {
	t.Helper()
	at := filepath.Join(dir, pod, "volumes", "kubernetes.io~empty-dir", launcherapi.MeetVolume)
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(at, rendezvous.Socket)
}

func TestNoLinkIsFollowed(t *testing.T) {
	dir, err := os.MkdirTemp("", "node") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	victim, thief := place(t, dir, "victim"), place(t, dir, "thief")
	l, err := net.Listen("unix", victim)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := reach(dir, "victim", rendezvous.Socket)
	if err != nil {
		t.Fatalf("a pod that waits is not reached: %v", err)
	}
	_ = c.Close()
	if err := os.Symlink(victim, thief); err != nil {
		t.Fatal(err)
	}
	if _, err := reach(dir, "thief", rendezvous.Socket); err == nil {
		t.Error("one pod's link led to the socket of another")
	}
	if _, err := reach(dir, "../"+types.UID(filepath.Base(dir))+"/victim", rendezvous.Socket); err == nil {
		t.Error("a UID led out of the directory")
	}
}

func TestOnlyItsOwnLauncherIsMet(t *testing.T) {
	launcher := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "launcher", UID: "1",
		Labels: map[string]string{"kubevirt.io": "virt-launcher"}}}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "other", UID: "2"}}
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, p := range []*corev1.Pod{launcher, other} {
		if err := index.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	pods := listers.NewPodLister(index)
	holder := func(namespace string, owner *corev1.Pod, uid types.UID) *corev1.Pod {
		ref := metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("Pod"))
		ref.UID = uid
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, OwnerReferences: []metav1.OwnerReference{*ref}}}
	}
	if got := launcherOf(pods, holder("team", launcher, "1")); got != launcher {
		t.Error("a holder does not find its launcher")
	}
	for name, h := range map[string]*corev1.Pod{
		"nobody's": {}, "another namespace's": holder("elsewhere", launcher, "1"), "a later one's": holder("team", launcher, "9"),
		"no launcher's": holder("team", other, "2"),
	} {
		if launcherOf(pods, h) != nil {
			t.Errorf("%s holder was taken to a launcher", name)
		}
	}
}

// TestAHolderThatHangs delays no one else's disk, and is not tried twice at once.
func TestAHolderThatHangs(t *testing.T) {
	launcher := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "launcher", UID: "1",
		Labels: map[string]string{"kubevirt.io": "virt-launcher"}}}
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := index.Add(launcher); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hangs", "well"} {
		h := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), Labels: map[string]string{"kubevirt.io": "hotplug-disk"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(launcher, corev1.SchemeGroupVersion.WithKind("Pod"))}}}
		h.Status.Phase = corev1.PodRunning
		h.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		if err := index.Add(h); err != nil {
			t.Fatal(err)
		}
	}
	release, met, tries := make(chan struct{}), make(chan types.UID, 10), atomic.Int32{}
	a := &agent{pods: listers.NewPodLister(index), log: slog.New(slog.DiscardHandler), introduce: func(holder, _ types.UID) error {
		if holder == "hangs" {
			tries.Add(1)
			<-release
		}
		met <- holder
		return nil
	}}
	for range 3 {
		if err := a.round(); err != nil {
			t.Fatal(err)
		}
		if got := <-met; got != "well" {
			t.Fatalf("%s was introduced", got)
		}
		for _, busy := a.busy.Load(types.UID("well")); busy; _, busy = a.busy.Load(types.UID("well")) {
			runtime.Gosched()
		}
	}
	close(release)
	if got := <-met; got != "hangs" || tries.Load() != 1 {
		t.Errorf("%s was introduced after %d tries", got, tries.Load())
	}
}

// TestQuota: one namespace does not take every place at the cache of layers.
func TestQuota(t *testing.T) {
	q := &quota{has: map[string]int{}}
	got := 0
	for range askers {
		if q.enter("greedy") {
			got++
		}
	}
	if got != namespaced || !q.enter("another") {
		t.Errorf("%d askers of one namespace were served, and nobody of another", got)
	}
	for i := range askers {
		if q.enter(fmt.Sprint("team-", i)) {
			got++
		}
	}
	if got+1 != askers {
		t.Errorf("%d askers were served at a time", got+1)
	}
	q.leave("another")
	if _, kept := q.has["another"]; kept || !q.enter("greedy-no-more") {
		t.Error("a place that was left is not free")
	}
}

// TestCacheRound: a launcher that wants to be introduced is tried until it is, one at a time; one that has ended is left alone.
func TestCacheRound(t *testing.T) {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, phase := range map[string]corev1.PodPhase{"starts": corev1.PodPending, "runs": corev1.PodRunning, "ended": corev1.PodFailed} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), Labels: map[string]string{"kubevirt.io": "virt-launcher"}}}
		p.Status.Phase = phase
		if err := index.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	met := make(chan string, 10)
	a := &agent{pods: listers.NewPodLister(index), log: slog.New(slog.DiscardHandler), introduceCache: func(launcher types.UID, namespace string) (bool, error) {
		met <- namespace + "/" + string(launcher)
		return true, nil
	}}
	if err := a.cacheRound(); err != nil {
		t.Fatal(err)
	}
	got := []string{<-met, <-met}
	slices.Sort(got)
	if !slices.Equal(got, []string{"team/runs", "team/starts"}) || len(met) > 0 {
		t.Errorf("introduced: %q", got)
	}
}

// TestDependencies: the agent runs no guest, talks to no registry, and moves no bytes but those of layers.
func TestDependencies(t *testing.T) {
	dependencies.Refuse(t, dependencies.Berth+"transfer/source/registry", dependencies.Berth+"transfer/source/http", dependencies.Berth+"launcher",
		"github.com/digitalocean/go-libvirt", "sigs.k8s.io/controller-runtime")
}
