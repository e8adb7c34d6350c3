package machine

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskrelease"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// dropLauncher deletes the pod of the machine's launcher, as a user can.
func dropLauncher(w *world) {
	if p := w.launcher(); p != nil {
		w.must(w.api.Delete(context.Background(), p))
	}
}

// loseLauncher has the launcher's pod vanish without its finalizer, and with it what it said.
func loseLauncher(w *world) {
	p := w.launcher()
	p.Finalizers = nil
	w.must(w.api.Update(context.Background(), p))
	w.must(w.api.Delete(context.Background(), p))
}

func (w *world) launcher() *corev1.Pod {
	all, err := launcherpod.Of(context.Background(), cluster.Reads(w.api), w.instance())
	w.must(err)
	return launcherpod.Present(all)
}

// TestLauncherDeleted: a guest runs once in an instance. If its launcher is deleted the instance ends, and the run strategy decides about another.
func TestLauncherDeleted(t *testing.T) {
	start := requests(kubevirt.StartRequest)
	running, stopped := kubevirt.StatusRunning, kubevirt.StatusStopped
	scenarios := []scenario{
		{name: "always", alone: true, strategy: kubevirt.RunAlways, asks: []func(*world){dropLauncher}, status: running, phase: kubevirt.PhaseRunning},
		{name: "rerun", alone: true, strategy: kubevirt.RunRerunOnFailure, asks: []func(*world){dropLauncher}, status: running, phase: kubevirt.PhaseRunning},
		{name: "once", alone: true, strategy: kubevirt.RunOnce, asks: []func(*world){dropLauncher}, status: stopped, phase: kubevirt.PhaseFailed},
		{name: "manual", strategy: kubevirt.RunManual, asks: []func(*world){start, dropLauncher}, status: stopped, phase: kubevirt.PhaseFailed},
		{name: "manual, and started again", strategy: kubevirt.RunManual, asks: []func(*world){start, dropLauncher, start}, status: running, phase: kubevirt.PhaseRunning},
		{name: "vanished", strategy: kubevirt.RunOnce, asks: []func(*world){loseLauncher}, status: stopped, phase: kubevirt.PhaseFailed},
		{name: "off before", strategy: kubevirt.RunOnce, ends: []launcherapi.End{launcherapi.PoweredOff}, asks: []func(*world){dropLauncher}, status: stopped, phase: kubevirt.PhaseSucceeded},
		{name: "failed before", strategy: kubevirt.RunOnce, ends: []launcherapi.End{launcherapi.Crashed}, asks: []func(*world){dropLauncher}, status: stopped, phase: kubevirt.PhaseFailed},
		{name: "before it had a guest", strategy: kubevirt.RunOnce, nowhere: true, asks: []func(*world){dropLauncher},
			status: kubevirt.StatusUnschedulable, phase: kubevirt.PhaseScheduling},
		{name: "moved", strategy: kubevirt.RunOnce, asks: []func(*world){moveTo("one"), dropLauncher}, status: stopped, phase: kubevirt.PhaseFailed},
		{name: "while it moves", strategy: kubevirt.RunOnce, move: staysSending, asks: []func(*world){moveTo("one"), dropLauncher}, status: stopped, phase: kubevirt.PhaseFailed},
	}
	loop(t, scenarios)
	guests := map[string]int{"always": 2, "rerun": 2, "manual, and started again": 2, "before it had a guest": 0}
	for _, sc := range scenarios {
		w := newWorld(t, sc)
		w.settle()
		w.run()
		want, ok := guests[sc.name]
		if !ok {
			want = 1
		}
		if w.guests != want {
			t.Errorf("%s: %d guests were started, not %d", sc.name, w.guests, want)
		}
	}
}

// TestBareInstanceRunsOnce: an instance without a machine ends with its launcher, and says why.
func TestBareInstanceRunsOnce(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunHalted})
	w.settle()
	i := observed.NewInstance(w.vm())
	i.OwnerReferences, i.UID = nil, "bare"
	w.must(w.api.Create(context.Background(), i))
	w.settle()
	if got := w.instance(); got.Status.Phase != kubevirt.PhaseRunning {
		t.Fatalf("the instance is %s", got.Status.Phase)
	}
	dropLauncher(w)
	w.settle()
	got := w.instance()
	if got == nil || got.UID != "bare" || got.Status.Phase != kubevirt.PhaseFailed || w.guests != 1 {
		t.Fatalf("%d guests, the instance is %+v", w.guests, got)
	}
	if text := got.Status.Conditions[0].Message; !strings.Contains(text, "was deleted") {
		t.Errorf("it says %q", text)
	}
	if got.Status.NodeName != "node1" {
		t.Errorf("it ran on %q", got.Status.NodeName)
	}
}

// TestRecordsOfAnotherRun: what is recorded about a guest counts for the instance that it is recorded of, and not for one that was
// restored from a backup with its annotations.
func TestRecordsOfAnotherRun(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunHalted})
	w.settle()
	i := observed.NewInstance(w.vm())
	i.OwnerReferences, i.UID = nil, "bare"
	i.Annotations = map[string]string{observed.AnnStarted: "before", observed.AnnEnded: `{"instance":"before"}`}
	w.must(w.api.Create(context.Background(), i))
	w.settle()
	if got := w.instance(); got.Status.Phase != kubevirt.PhaseRunning {
		t.Errorf("the instance is %s", got.Status.Phase)
	}
}

// TestStaleCacheStartsNoGuestTwice: the launcher is gone from the cache of pods, and its end is not yet in that of instances.
func TestStaleCacheStartsNoGuestTwice(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunOnce})
	w.run()
	old := w.instance()
	delete(old.Annotations, observed.AnnStarted)
	dropLauncher(w)
	w.settle()
	s, err := w.r.Read.Instance(context.Background(), old)
	w.must(err)
	if s.Past != nil {
		t.Fatal("the cache is not stale")
	}
	if err := w.r.Instance.Start(context.Background(), s, render.Launcher); err == nil {
		t.Error("a second launcher was made")
	}
	if _, err := w.r.Instance.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: vmName}}); err != nil {
		t.Error(err)
	}
}

// TestEndOfALostNode: a guest whose node is gone has failed, and the instance says so.
func TestEndOfALostNode(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", DeletionTimestamp: &metav1.Time{}}, Spec: corev1.PodSpec{NodeName: "node1"}}
	e := diskrelease.EndingOf(&kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: "run"}}, p)
	if e.Well || e.At != nil || e.Report.Detail != "node node1 is gone, and its guest with it" || e.Instance != "run" {
		t.Errorf("%+v", e)
	}
}
