package machine

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/attempts"
	"github.com/berth-vm/berth/internal/controller/evacuation"
	"github.com/berth-vm/berth/internal/controller/movestatus"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

func (sc scenario) machine() *kubevirt.VirtualMachine {
	vm := newMachine(sc.strategy)
	if sc.evict != "" {
		vm.Spec.Template.Spec.EvictionStrategy = &sc.evict
	}
	return vm
}

// budgets are the names of those that are left.
func (w *world) budgets() []string {
	var list policyv1.PodDisruptionBudgetList
	w.must(w.api.List(context.Background(), &list))
	var names []string
	for _, b := range list.Items {
		if i := w.instance(); i != nil && metav1.IsControlledBy(&b, i) {
			names = append(names, b.Name)
		}
	}
	return names
}

// drain does what the webhook does when a client asks for the launcher to be evicted.
func drain(w *world) {
	w.clock.SetTime(w.clock.Now().Add(time.Minute)) // two drains are never of the same second
	for _, p := range w.launcherPods() {
		if p.Spec.NodeName != "" && launcherpod.Ended(&p) == "" {
			p.Annotations[render.AnnEvacuate] = w.clock.Now().UTC().Format(time.RFC3339)
			w.must(w.api.Update(context.Background(), &p))
		}
	}
}

// TestEvacuationLoop: a guest that is to leave its node moves, once, whatever happens to the controller meanwhile.
func TestEvacuationLoop(t *testing.T) {
	up, running, always := kubevirt.PhaseRunning, kubevirt.StatusRunning, kubevirt.RunAlways
	loop(t, []scenario{
		{name: "moves", strategy: always, evict: kubevirt.EvictLiveMigrate, asks: []func(*world){drain}, status: running, phase: up},
		{name: "there and back", strategy: always, evict: kubevirt.EvictLiveMigrate, asks: []func(*world){drain, drain}, status: running, phase: up},
		{name: "moves if it can", strategy: always, evict: kubevirt.EvictLiveMigrateIfPossible, asks: []func(*world){drain}, status: running, phase: up},
		{name: "cannot", strategy: always, local: true, evict: kubevirt.EvictLiveMigrate, asks: []func(*world){drain}, status: running, phase: up},
		{name: "cannot and need not", strategy: always, local: true, evict: kubevirt.EvictLiveMigrateIfPossible, asks: []func(*world){drain}, status: running, phase: up},
		{name: "left to others", strategy: always, evict: kubevirt.EvictExternal, asks: []func(*world){drain}, status: running, phase: up},
		{name: "nobody's concern", strategy: always, evict: kubevirt.EvictNone, asks: []func(*world){drain}, status: running, phase: up},
		{name: "moves already", strategy: always, evict: kubevirt.EvictLiveMigrate, move: staysSending, asks: []func(*world){moveTo("one"), drain},
			status: running, phase: up},
		{name: "stopped", strategy: always, evict: kubevirt.EvictLiveMigrate, asks: []func(*world){setStrategy(kubevirt.RunHalted)}, status: kubevirt.StatusStopped},
		{name: "leaves and is deleted", strategy: always, evict: kubevirt.EvictLiveMigrate, asks: []func(*world){drain, remove}},
	})
}

// TestEvacuationSaid: who is guarded, who moves, and what people read.
func TestEvacuationSaid(t *testing.T) {
	for name, c := range map[string]struct {
		evict   kubevirt.EvictionStrategy
		cluster kubevirt.EvictionStrategy // of the KubeVirt configuration
		local   bool
		guarded bool
		node    string
		says    string // in the condition
	}{
		"moves":                 {evict: kubevirt.EvictLiveMigrate, guarded: true, node: "node2"},
		"the cluster says so":   {cluster: kubevirt.EvictLiveMigrate, guarded: true, node: "node2"},
		"its own word counts":   {evict: kubevirt.EvictNone, cluster: kubevirt.EvictLiveMigrate, node: "node1"},
		"nobody says":           {node: "node1"},
		"cannot":                {evict: kubevirt.EvictLiveMigrate, local: true, guarded: true, node: "node1", says: "ReadWriteMany"},
		"if possible, possible": {evict: kubevirt.EvictLiveMigrateIfPossible, guarded: true, node: "node2"},
		"if possible, and not":  {evict: kubevirt.EvictLiveMigrateIfPossible, local: true, node: "node1"},
		"external":              {evict: kubevirt.EvictExternal, guarded: true, node: "node1", says: "its external controller"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, scenario{strategy: kubevirt.RunAlways, evict: c.evict, local: c.local})
			w.r.Read.Options.Namespace = "berth"
			for _, namespace := range []string{"berth", ns} { // a tenant's own does not count
				k := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kubevirt.ConfigurationName}}
				if k.Spec.Configuration.EvictionStrategy = &c.cluster; namespace == ns {
					k.Spec.Configuration.EvictionStrategy = new(kubevirt.EvictLiveMigrate)
				}
				w.must(w.api.Create(context.Background(), k))
			}
			w.settle()
			if got := len(w.budgets()) == 1; got != c.guarded {
				t.Errorf("guarded before anybody asks: %t", got)
			}
			drain(w)
			w.settle()
			i := w.instance()
			if i.Status.NodeName != c.node {
				t.Errorf("the guest is on %s", i.Status.NodeName)
			}
			if got := len(w.budgets()) == 1; got != c.guarded {
				t.Errorf("guarded afterwards: %t", got)
			}
			at := slices.IndexFunc(i.Status.Conditions, func(c kubevirt.Condition) bool { return c.Type == evacuation.LeavingType })
			switch {
			case c.says == "" && (at >= 0 || i.Status.EvacuationNodeName != ""):
				t.Errorf("it is still to leave %q", i.Status.EvacuationNodeName)
			case c.says != "" && (at < 0 || !strings.Contains(i.Status.Conditions[at].Message, c.says) || i.Status.EvacuationNodeName != "node1"):
				t.Errorf("it says %+v, and is to leave %q", i.Status.Conditions, i.Status.EvacuationNodeName)
			}
		})
	}
}

// TestEvacuationRetries: a guest that could not be moved is tried again, less and less often, and few failures are kept.
func TestEvacuationRetries(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways, evict: kubevirt.EvictLiveMigrate, move: keeps})
	w.settle()
	drain(w)
	var began []time.Time
	seen := map[string]bool{}
	for until := w.clock.Now().Add(20 * time.Minute); w.clock.Now().Before(until); {
		wait, before := time.Minute, w.faults.Writes // time goes by as the controller asks to be called again
		for _, reconcile := range []func(context.Context, ctrl.Request) (ctrl.Result, error){w.r.Instance.Reconcile, w.migrate, w.keep} {
			result, err := reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: ns, Name: vmName}})
			w.must(err)
			if result.RequeueAfter > 0 {
				wait = min(wait, result.RequeueAfter)
			}
		}
		if w.turn() || w.faults.Writes != before {
			wait = min(wait, time.Second)
		}
		w.clock.SetTime(w.clock.Now().Add(wait))
		for name := range w.migrations() {
			if !seen[name] {
				seen[name] = true
				began = append(began, w.clock.Now())
			}
		}
	}
	if len(began) < 4 || len(began) > 9 {
		t.Fatalf("%d tries in 20 minutes: %v", len(began), began)
	}
	for n := 2; n < len(began); n++ {
		if before, now := began[n-1].Sub(began[n-2]), began[n].Sub(began[n-1]); now < before || now > attempts.Last+time.Minute {
			t.Errorf("try %d came %v after the last, and that %v after the one before", n, now, before)
		}
	}
	if left := len(w.migrations()); left > attempts.Kept {
		t.Errorf("%d migrations are left", left)
	}
	if i := w.instance(); i.Status.NodeName != "node1" || w.guests != 1 {
		t.Errorf("the guest is on %s, and %d were started", i.Status.NodeName, w.guests)
	}
}

// TestEvacuationCancelled: a migration of a drain that a user cancels is not started again at once, even if the drain asks again;
// and never if it does not.
func TestEvacuationCancelled(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways, evict: kubevirt.EvictLiveMigrate, move: staysSending, asks: []func(*world){drain}})
	w.run()
	for name := range w.migrations() {
		cancel(name)(w)
	}
	w.settle()
	if left := w.migrations(); len(left) > 0 || w.launcherPods()[0].Annotations[render.AnnEvacuate] != "" {
		t.Fatalf("migrations %v, and the launcher is marked %v", left, w.launcherPods()[0].Annotations)
	}
	drain(w)
	for range 3 {
		_, err := w.r.Instance.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: ns, Name: vmName}})
		w.must(err)
	}
	i := w.instance()
	if text := conditionText(i.Status.Conditions, evacuation.LeavingType); len(w.migrations()) > 0 || !strings.Contains(text, "somebody cancelled its migration") {
		t.Errorf("migrations %v, and it says %q", w.migrations(), text)
	}
	w.clock.SetTime(w.clock.Now().Add(attempts.Last))
	w.sc.move = moves
	w.settle()
	if at := w.instance().Status.NodeName; at != "node2" {
		t.Errorf("five minutes later the guest is on %s", at)
	}
}

// TestEvacuationTakenBack: an eviction request that was withdrawn by its name is not followed, before or after its migration has
// begun; a later one is.
func TestEvacuationTakenBack(t *testing.T) {
	w := newWorld(t, scenario{strategy: kubevirt.RunAlways, evict: kubevirt.EvictLiveMigrate, move: staysSending})
	w.run()
	drain(w)
	i := w.instance()
	i.Annotations = map[string]string{kubevirt.AnnStays: render.EvacuationID(&w.launcherPods()[0])}
	w.must(w.api.Update(context.Background(), i))
	w.settle()
	if left := w.migrations(); len(left) > 0 || w.launcherPods()[0].Annotations[render.AnnEvacuate] != "" || w.instance().Status.EvacuationNodeName != "" {
		t.Fatalf("migrations %v, the launcher is marked %v, and it is to leave %q", left, w.launcherPods()[0].Annotations, w.instance().Status.EvacuationNodeName)
	}
	w.clock.SetTime(w.clock.Now().Add(2 * attempts.Last))
	w.sc.move = moves
	drain(w)
	w.settle()
	if at := w.instance().Status.NodeName; at != "node2" {
		t.Errorf("after another drain the guest is on %s", at)
	}
}

// TestLimits: no more migrations are under way than the configuration allows, in the cluster and from one node, and the others come
// in their order.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		cluster, node uint32
		want          string // which may begin of five: a and b from node1, c, d and e from node2, in this order
	}{
		"enough":        {10, 10, "a b c d e"},
		"the cluster":   {3, 10, "a b c"},
		"the node":      {10, 1, "a c"},
		"both":          {2, 1, "a c"},
		"one at a time": {1, 1, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, scenario{strategy: kubevirt.RunAlways})
			ctx := context.Background()
			k := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: kubevirt.ConfigurationName, Namespace: "berth"}}
			k.Spec.Configuration.MigrationConfiguration = &kubevirt.MigrationConfiguration{
				ParallelMigrationsPerCluster: &c.cluster, ParallelOutboundMigrationsPerNode: &c.node}
			w.r.Read.Options.Namespace = "berth"
			w.must(w.api.Create(ctx, k))
			for n, name := range []string{"a", "b", "c", "d", "e"} {
				i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-" + name, Name: name}}
				w.must(w.api.Create(ctx, i))
				i.Status.NodeName = map[bool]string{true: "node1", false: "node2"}[n < 2]
				w.must(w.api.Status().Update(ctx, i))
				m := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-" + name, Name: name, UID: types.UID(name),
					CreationTimestamp: metav1.NewTime(w.clock.Now().Add(time.Duration(n) * time.Second))}, Spec: kubevirt.MigrationSpec{VMIName: name}}
				w.must(w.api.Create(ctx, m))
			}
			ended := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-a", Name: "old"},
				Spec: kubevirt.MigrationSpec{VMIName: "a"}}
			w.must(w.api.Create(ctx, ended))
			ended.Status.Phase = kubevirt.MigrationSucceeded
			w.must(w.api.Status().Update(ctx, ended))
			var list kubevirt.VirtualMachineInstanceMigrationList
			w.must(w.api.List(ctx, &list))
			var begin []string
			for i := range list.Items {
				why, err := w.r.Migration.Crowded(ctx, &list.Items[i])
				w.must(err)
				if why == "" && !list.Items[i].Ended() {
					begin = append(begin, list.Items[i].Name)
				}
				if why != "" && !strings.Contains(why, "parallel") {
					t.Errorf("%s does not say which setting it is", why)
				}
			}
			if got := strings.Join(begin, " "); got != c.want {
				t.Errorf("%s may begin, not %s", got, c.want)
			}
			// One that the cache shows only now, although it is as old as the first, comes after those that have begun.
			late := list.Items[0].DeepCopy()
			late.ResourceVersion, late.Name, late.UID, late.Spec.VMIName = "", "late", "0", "a"
			w.must(w.api.Create(ctx, late))
			if why, err := w.r.Migration.Crowded(ctx, late); err != nil || (why == "") != (name == "enough") {
				t.Errorf("a late one: %q %v", why, err)
			}
		})
	}
}

// TestAddedNodeSelector: it can narrow the choice of a node, and never widen it.
func TestAddedNodeSelector(t *testing.T) {
	for _, c := range []struct{ own, added, want map[string]string }{
		{nil, nil, nil},
		{map[string]string{"a": "1"}, nil, map[string]string{"a": "1"}},
		{nil, map[string]string{"b": "2"}, map[string]string{"b": "2"}},
		{map[string]string{"a": "1"}, map[string]string{"a": "2", "b": "2"}, map[string]string{"a": "1", "b": "2"}},
	} {
		if got := movestatus.Narrowed(c.own, c.added); !maps.Equal(got, c.want) {
			t.Errorf("%v and %v: %v", c.own, c.added, got)
		}
	}
}
