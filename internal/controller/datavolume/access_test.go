package datavolume

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/filltest"
)

// TestSourceIsWrittenMeanwhile: a clone is not complete if a pod writes to its source while it is copied: it is copied again when
// the pod has ended, and says why it waits. It does not matter whether the pod still exists when the worker is done.
func TestSourceIsWrittenMeanwhile(t *testing.T) {
	running := func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodRunning }
	done := func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodSucceeded }
	for name, c := range map[string]struct {
		when  func(worker *corev1.Pod) bool
		ended bool // the pod has ended by the time that it is looked for
	}{
		"before the worker runs":         {func(p *corev1.Pod) bool { return p != nil }, false},
		"while it copies":                {running, false},
		"when it is done":                {done, false},
		"and has ended when it was done": {done, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := filltest.New(t, filltest.Scene{
				Objects: append(filltest.BoundOn("golden", filltest.Node), append(filltest.Nodes(filltest.Node), filltest.Class(filltest.AtOnce), cloneOf(filltest.Team))...),
				Reports: []task.Report{filltest.Done()},
			})
			r := build(w)
			step := func() {
				_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: filltest.Team, Name: volumeName}})
				w.Must(err)
			}
			worker := func() *corev1.Pod { return filltest.Get[corev1.Pod](w, filltest.Team, "importer-"+volumeName) }
			for n := 0; !c.when(worker()); n++ {
				if n > 20 {
					t.Fatalf("the worker never came so far: %v", worker())
				}
				if step(); !c.when(worker()) {
					w.Turn()
				}
			}
			first := worker().UID
			writer := user(filltest.Team)
			w.Must(w.API.Create(t.Context(), writer))
			if c.ended {
				writer.Status.Phase = corev1.PodSucceeded
				writer.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(w.Clock.Now().Add(time.Second))}}}}
				w.Must(w.API.Status().Update(t.Context(), writer))
				w.Clock.SetTime(w.Clock.Now().Add(time.Minute))
			}
			for range 6 {
				step()
				if got, why := reason(volumeIn(w)); volumeIn(w).Status.Phase == cdiv1.Succeeded && worker() != nil && worker().UID == first {
					t.Fatalf("a torn clone is complete: %s: %s", got, why)
				}
				w.Turn()
			}
			if !c.ended {
				if got, why := reason(volumeIn(w)); got != string(state.SourceBusy) || !strings.Contains(why, "team/user uses it") || worker() != nil {
					t.Fatalf("it says %s: %s; worker %v", got, why, worker())
				}
				w.Must(w.API.Delete(t.Context(), writer))
			}
			w.Run(volumeName, r)
			left := w.Left()
			if volumeIn(w).Status.Phase != cdiv1.Succeeded || left["disks"] != 0 {
				t.Errorf("it is %s, left are %v", volumeIn(w).Status.Phase, left)
			}
			if again := name != "before the worker runs" && name != "while it copies"; again && w.Tries != 2 {
				t.Errorf("it was copied %d times", w.Tries)
			}
		})
	}
}

// record says that a machine has the disk of a volume.
func record(t *testing.T, w *filltest.World, pv string, mode accessv1.Mode) *accessv1.DiskAccess {
	t.Helper()
	id := filltest.DiskOf(w, pv)
	r := &accessv1.DiskAccess{Spec: accessv1.DiskAccessSpec{Disk: id.String(), Holders: []accessv1.Holder{
		{Namespace: filltest.Team, Machine: "vm", UID: "run", Pod: "virt-launcher-vm", PodUID: "launcher", Node: filltest.Node, Mode: mode}}}}
	r.Name = id.Name()
	return r
}

// TestAMachineHasTheSource: a machine that writes to the source by whatever claim keeps a clone waiting; one that only reads it does not; and
// while the clone is read, the worker is among the holders of the source.
func TestAMachineHasTheSource(t *testing.T) {
	for mode, waits := range map[accessv1.Mode]bool{accessv1.WriteExclusive: true, accessv1.WriteShared: true, accessv1.ReadShared: false} {
		t.Run(string(mode), func(t *testing.T) {
			w := filltest.New(t, filltest.Scene{
				Objects: append(filltest.BoundOn("golden", filltest.Node), append(filltest.Nodes(filltest.Node), filltest.Class(filltest.AtOnce), cloneOf(filltest.Team))...),
				Reports: []task.Report{filltest.Done()},
			})
			has := record(t, w, "pv-of-golden", mode)
			w.Must(w.API.Create(t.Context(), has))
			if waits {
				r := build(w)
				for range 6 {
					_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: filltest.Team, Name: volumeName}})
					w.Must(err)
					w.Turn()
				}
				if got, why := reason(volumeIn(w)); got != string(state.SourceBusy) || !strings.Contains(why, "machine vm has it "+string(mode)) {
					t.Fatalf("it says %s: %s", got, why)
				}
				w.Must(w.API.Delete(t.Context(), has))
			}
			w.Run(volumeName, build(w))
			if volumeIn(w).Status.Phase != cdiv1.Succeeded {
				t.Errorf("it is %s", volumeIn(w).Status.Phase)
			}
		})
	}
}

// TestWorkerIsRecorded: a worker does not run before it is among the holders of the disks that it reads and writes.
func TestWorkerIsRecorded(t *testing.T) {
	w := filltest.New(t, filltest.Scene{
		Objects: append(filltest.BoundOn("golden", filltest.Node), append(filltest.Nodes(filltest.Node), filltest.Class(filltest.AtOnce), cloneOf(filltest.Team))...),
		Reports: []task.Report{filltest.Done()},
	})
	r := build(w)
	for range 12 {
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: filltest.Team, Name: volumeName}})
		w.Must(err)
		p := filltest.Get[corev1.Pod](w, filltest.Team, "importer-"+volumeName)
		if p != nil && len(p.Spec.SchedulingGates) == 0 && p.Status.Phase == "" {
			var all accessv1.DiskAccessList
			w.Must(w.API.List(t.Context(), &all))
			modes := map[accessv1.Mode]accessv1.Use{}
			for _, r := range all.Items {
				for _, h := range r.Spec.Holders {
					if h.PodUID == p.UID {
						modes[h.Mode] = h.Use
					}
				}
			}
			if len(modes) != 2 || modes[accessv1.ReadShared] != accessv1.UseClone || modes[accessv1.WriteExclusive] != accessv1.UseFill {
				t.Errorf("it runs and is recorded as %v", modes)
			}
			return
		}
		w.Turn()
	}
	t.Error("no worker was let run")
}
