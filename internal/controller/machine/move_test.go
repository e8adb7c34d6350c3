package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/movestatus"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
)

// fate is the outcome of a scenario's migrations.
type fate string

const (
	moves        fate = ""             // the guest moves, and the source tells the target
	movesUntold  fate = "untold"       // the guest moves, and the target hears of it from the controller only
	staysSending fate = "sends"        // the source sends until it is told to stop
	keeps        fate = "keeps"        // the source cannot send
	targetDies   fate = "target dies"  // before the guest has come
	targetNever  fate = "target never" // it cannot get ready
	sourceDies   fate = "source dies"  // while it sends
)

// node is where a pod goes: a target to another than its source, unless it says which.
func node(p *corev1.Pod) string {
	away := ""
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				if f.Operator == corev1.NodeSelectorOpIn {
					return f.Values[0]
				}
				away = f.Values[0]
			}
		}
	}
	if away == "node1" {
		return "node2"
	}
	return "node1"
}

func (w *world) accessMode() corev1.PersistentVolumeAccessMode {
	if w.sc.local {
		return corev1.ReadWriteOnce
	}
	return corev1.ReadWriteMany
}

// end has a launcher leave its last words.
func (w *world) end(p *corev1.Pod, r launcherapi.Report) {
	text, err := json.Marshal(r)
	w.must(err)
	p.Status.Conditions, p.Status.Phase = nil, corev1.PodFailed
	if r.OK() {
		p.Status.Phase = corev1.PodSucceeded
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Message: string(text), FinishedAt: metav1.NewTime(w.clock.Now())}}}}
}

func (w *world) launcherPods() []corev1.Pod {
	var list corev1.PodList
	w.must(w.api.List(context.Background(), &list, client.MatchingLabels{render.LabelMachine: "virt-launcher"}))
	return list.Items
}

// arrive plays a target: it runs the guest when it hears that the source's has ended.
func (w *world) arrive(p *corev1.Pod) bool {
	if p.Annotations[render.AnnGo] != "yes" {
		return false
	}
	if w.sc.move == targetNever {
		w.end(p, launcherapi.Report{End: launcherapi.Refused, Detail: "it cannot"})
		return true
	}
	told, gone := false, launcherpod.Orders(p).Run
	for _, q := range w.launcherPods() {
		told = told || launcherpod.Orders(&q).Pod == p.Name
		gone = gone || w.sc.move != movesUntold && launcherpod.Ended(&q) != "" && launcherpod.LastWords(&q).To == p.Name
		if q.Name != p.Name && pods.Ready(&q) && gone {
			w.t.Errorf("pod %s runs the guest while pod %s does", p.Name, q.Name)
		}
	}
	switch {
	case gone:
		w.data.run(w, p, true)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return true
	case told && w.sc.move == targetDies:
		w.end(p, launcherapi.Report{End: launcherapi.Refused, Detail: "it died"})
		return true
	}
	return false
}

// depart plays a source that was told to send its guest.
func (w *world) depart(p *corev1.Pod) bool {
	o := launcherpod.Orders(p)
	if o.To == "" || o.Cancel || o.Pod == "" {
		return false
	}
	switch w.sc.move {
	case moves, movesUntold:
		w.end(p, launcherapi.Report{End: launcherapi.Moved, To: o.Pod, Pause: 90})
	case sourceDies:
		w.end(p, launcherapi.Report{End: launcherapi.Crashed, Detail: "it died"})
		w.sc.move = moves
	case staysSending, keeps, targetDies, targetNever:
		return false
	}
	return true
}

// moveSays returns the launcher's report about a migration; nil: it has none.
func (w *world) moveSays(p *corev1.Pod) *launcherapi.Moving {
	o := launcherpod.Orders(p)
	switch m := launcherpod.Machine(p); {
	case o.To != "" && o.Cancel:
		return &launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveStopped, Detail: "it was asked to keep the guest"}
	case o.To != "" && w.sc.move == keeps:
		return &launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveFailed, Detail: "the wire broke"}
	case o.To != "":
		return &launcherapi.Moving{ID: o.ID, Stage: launcherapi.MoveSends, Sent: 1 << 20, Total: 2 << 20}
	case m.Incoming != "" && !pods.Ready(p) && w.sc.move != targetNever:
		return &launcherapi.Moving{ID: m.Incoming, Stage: launcherapi.MoveWaits}
	}
	return nil
}

// launcherSays what became of the disks that its orders want back.
func (w *world) launcherSays(p *corev1.Pod) (launcherapi.Returns, error) {
	if said := w.moveSays(p); said != nil {
		return launcherapi.Returns{Move: said}, nil
	}
	var pods corev1.PodList
	w.must(w.api.List(context.Background(), &pods, client.MatchingLabels{render.LabelMachine: "virt-launcher"}))
	said := launcherapi.Returns{Kept: map[string]string{}}
	for _, p := range pods.Items {
		var d launcherapi.Disks
		_ = json.Unmarshal([]byte(p.Annotations[render.AnnDisks]), &d)
		said.Given = append(said.Given, d.Removed...)
		said.Serial = d.Serial
	}
	if i := w.instance(); i != nil {
		said.Paused = i.Spec.StartsPaused()
	}
	said.Servers = logsInAt(p)
	if w.backedUp {
		return launcherapi.Returns{BackedUp: true}, nil
	}
	if w.keeps {
		said = launcherapi.Returns{Kept: map[string]string{"extra": "it was asked for"}}
	}
	return said, nil
}

// migrate reconciles every migration.
func (w *world) migrate(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var list kubevirt.VirtualMachineInstanceMigrationList
	w.must(w.api.List(ctx, &list))
	var all ctrl.Result
	for i := range list.Items {
		for _, reconcile := range []reconcile.Func{w.r.Migration.Reconcile, w.r.Offline.Reconcile} {
			r, err := reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			if err != nil {
				return r, err
			}
			all.RequeueAfter = max(all.RequeueAfter, r.RequeueAfter)
		}
	}
	return all, nil
}

func (w *world) migrations() map[string]string {
	var list kubevirt.VirtualMachineInstanceMigrationList
	w.must(w.api.List(context.Background(), &list))
	out := map[string]string{}
	for _, m := range list.Items {
		out[m.Name] = string(m.Status.Phase) + " " + report.ReasonOf(m.Status.Conditions)
		if s := m.Status.MigrationState; s != nil {
			out[m.Name] += fmt.Sprintf(" %s->%s completed %t failed %t %s", s.SourceNode, s.TargetNode, s.Completed, s.Failed, s.AbortStatus)
		}
	}
	return out
}

// moveTo asks for migrations.
func moveTo(names ...string) func(*world) {
	return func(w *world) {
		for i, name := range names {
			w.must(w.api.Create(context.Background(), &kubevirt.VirtualMachineInstanceMigration{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name + "-uid"),
					CreationTimestamp: metav1.NewTime(w.clock.Now().Add(time.Duration(i) * time.Second))},
				Spec: kubevirt.MigrationSpec{VMIName: vmName}}, client.FieldOwner("somebody")))
		}
	}
}

func cancel(name string) func(*world) {
	return func(w *world) {
		w.must(w.api.Delete(context.Background(), &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}))
	}
}

// TestMoveLoop: a guest moves, or stays where it is, whatever happens to the controller meanwhile; and never are there two.
func TestMoveLoop(t *testing.T) {
	up, running := kubevirt.PhaseRunning, kubevirt.StatusRunning
	always := kubevirt.RunAlways
	loop(t, []scenario{
		{name: "there", alone: true, strategy: always, asks: []func(*world){moveTo("one")}, status: running, phase: up},
		{name: "the target hears of it from the controller", strategy: always, move: movesUntold, asks: []func(*world){moveTo("one")}, status: running, phase: up},
		{name: "there and back", strategy: always, asks: []func(*world){moveTo("one"), moveTo("two")}, status: running, phase: up},
		{name: "two at once", strategy: always, asks: []func(*world){moveTo("one", "two")}, status: running, phase: up},
		{name: "cancelled", alone: true, strategy: always, move: staysSending, asks: []func(*world){moveTo("one"), cancel("one")}, status: running, phase: up},
		{name: "cannot be sent", strategy: always, move: keeps, asks: []func(*world){moveTo("one")}, status: running, phase: up},
		{name: "target dies", strategy: always, move: targetDies, asks: []func(*world){moveTo("one")}, status: running, phase: up},
		{name: "target cannot", strategy: always, move: targetNever, asks: []func(*world){moveTo("one")}, status: running, phase: up},
		{name: "source dies", strategy: always, move: sourceDies, asks: []func(*world){moveTo("one")}, status: running, phase: up},
		{name: "a claim of one node", strategy: always, local: true, asks: []func(*world){moveTo("one")}, status: running, phase: up},
		{name: "a machine that is stopped", strategy: kubevirt.RunHalted, asks: []func(*world){moveTo("one")}, status: kubevirt.StatusStopped},
		{name: "stopped while it moves", strategy: always, move: staysSending, asks: []func(*world){moveTo("one"), setStrategy(kubevirt.RunHalted)},
			status: kubevirt.StatusStopped},
		{name: "deleted while it moves", strategy: always, move: staysSending, asks: []func(*world){moveTo("one"), remove}},
		{name: "moved and deleted", strategy: always, asks: []func(*world){moveTo("one"), cancel("one"), remove}},
	})
}

// TestMoveEvents: a guest that moves is started once, and says so once: it has never not run.
func TestMoveEvents(t *testing.T) {
	for _, how := range []fate{moves, movesUntold} {
		w, events := newWorld(t, scenario{strategy: kubevirt.RunAlways, move: how}), told{}
		w.control(cluster.New(w.faults.Client(w.api.(client.WithWatch), w.admit), events, w.clock))
		w.settle()
		before := len(events["*v1.VirtualMachineInstance"]) + len(events["*v1.VirtualMachine"])
		moveTo("one")(w)
		w.settle()
		if got := w.migrations()["one"]; !strings.HasPrefix(got, "Succeeded") {
			t.Errorf("the migration: %s", got)
		}
		if after := len(events["*v1.VirtualMachineInstance"]) + len(events["*v1.VirtualMachine"]); after != before {
			t.Errorf("the machine tells of more than was done:\n%s", events)
		}
		if phases := w.instance().Status.PhaseTransitionTimestamps; countRunning(phases) != 1 {
			t.Errorf("it went through the phases %+v", phases)
		}
	}
}

func countRunning(phases []kubevirt.PhaseTransition) (n int) {
	for _, p := range phases {
		if p.Phase == kubevirt.PhaseRunning {
			n++
		}
	}
	return n
}

// TestMoveDeleted: an instance that is deleted while its guest is sent is there until no launcher of it is among the holders of its disks.
func TestMoveDeleted(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways, move: staysSending})
	w.settle()
	moveTo("one")(w)
	w.settle()
	w.must(w.api.Delete(context.Background(), w.instance()))
	was := w.instance().UID
	for range 100 {
		for _, reconcile := range []func(context.Context, ctrl.Request) (ctrl.Result, error){w.r.Instance.Reconcile, w.keep} {
			_, err := reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: vmName}})
			w.must(err)
		}
		if i := w.instance(); i != nil && i.UID == was {
			w.turn()
			continue
		}
		var records accessv1.DiskAccessList
		w.must(w.api.List(context.Background(), &records))
		if n := len(records.Items); n > 0 || len(w.launcherPods()) > 0 {
			t.Errorf("the instance is gone, and %d records and %d launchers are left", n, len(w.launcherPods()))
		}
		return
	}
	t.Error("the instance is never gone")
}

// TestMoveNowhere: a migration whose target no node will have waits for five minutes, and leaves nothing.
func TestMoveNowhere(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways})
	w.settle()
	w.sc.nowhere = true
	moveTo("one")(w)
	w.settle()
	if got := w.migrations()["one"]; !strings.HasPrefix(got, "Scheduling TargetUnschedulable") {
		t.Errorf("at first: %s", got)
	}
	w.clock.SetTime(w.clock.Now().Add(movestatus.PlaceWithin))
	w.settle()
	if got := w.migrations()["one"]; !strings.HasPrefix(got, "Failed TargetNeverScheduled") || len(w.launcherPods()) != 1 {
		t.Errorf("after five minutes: %s, and %d launchers", got, len(w.launcherPods()))
	}
}

// TestMoveSaid: what people read of a migration.
func TestMoveSaid(t *testing.T) {
	for name, c := range map[string]struct {
		sc   scenario
		want string
		node string
	}{
		"moved":  {scenario{strategy: kubevirt.RunAlways}, "Succeeded Moved node1->node2 completed true failed false ", "node2"},
		"keeps":  {scenario{strategy: kubevirt.RunAlways, move: keeps}, "Failed SourceKeptGuest node1->node2 completed true failed true ", "node1"},
		"never":  {scenario{strategy: kubevirt.RunAlways, move: targetNever}, "Failed TargetFailed node1->node2 completed true failed true ", "node1"},
		"local":  {scenario{strategy: kubevirt.RunAlways, local: true}, "Failed NotLiveMigratable node1-> completed true failed true ", "node1"},
		"halted": {scenario{strategy: kubevirt.RunHalted}, "Failed NotRunning -> completed true failed true ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.sc)
			w.settle()
			moveTo("one")(w)
			w.settle()
			if got := w.migrations()["one"]; got != c.want {
				t.Errorf("%q instead of %q", got, c.want)
			}
			i := w.instance()
			if i == nil {
				return
			}
			if i.Status.NodeName != c.node {
				t.Errorf("the guest is on %q", i.Status.NodeName)
			}
			for _, cond := range i.Status.Conditions {
				if cond.Type == "LiveMigratable" && (cond.Status == corev1.ConditionTrue) == c.sc.local {
					t.Errorf("LiveMigratable: %+v", cond)
				}
				if c.sc.local && cond.Type == "LiveMigratable" && !strings.Contains(cond.Message, "ReadWriteMany") {
					t.Errorf("it does not say what to do: %s", cond.Message)
				}
			}
			if w.guests != 1 {
				t.Errorf("%d guests were started", w.guests)
			}
		})
	}
}
