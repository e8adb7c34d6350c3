package machine

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/render"
)

// copyTo asks for the disks of a machine that does not run to be moved.
func copyTo(name string) func(*world) {
	return func(w *world) {
		w.must(w.api.Create(context.Background(), &kubevirt.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: metav1.NewTime(w.clock.Now()),
				Annotations: map[string]string{kubevirt.AnnOffline: "true"}},
			Spec: kubevirt.MigrationSpec{VMIName: vmName}}, client.FieldOwner("somebody")))
	}
}

func nowhere(is bool) func(*world) { return func(w *world) { w.sc.nowhere = is } }

// TestOfflineLoop: the disks of a machine that is stopped are moved, whatever happens to the controller meanwhile; its claims have their names
// and all that its guests wrote; and of what is cancelled nothing is left.
func TestOfflineLoop(t *testing.T) {
	up, running, halted := kubevirt.PhaseRunning, kubevirt.StatusRunning, kubevirt.StatusStopped
	stop, start := setStrategy(kubevirt.RunHalted), setStrategy(kubevirt.RunAlways)
	sc := func(name string, status kubevirt.PrintableStatus, phase kubevirt.Phase, asks ...func(*world)) scenario {
		return scenario{name: name, local: true, class: true, homes: true, strategy: kubevirt.RunAlways, asks: append([]func(*world){stop}, asks...),
			status: status, phase: phase}
	}
	loop(t, []scenario{
		sc("there", halted, "", copyTo("one")),
		sc("there and started", running, up, copyTo("one"), start),
		sc("there and back", halted, "", copyTo("one"), copyTo("two")),
		sc("no node will have it", halted, "", nowhere(true), copyTo("one"), cancel("one")),
		sc("the machine is deleted", "", "", nowhere(true), copyTo("one"), remove),
		sc("started meanwhile, and cancelled", running, up, nowhere(true), copyTo("one"), nowhere(false), start, cancel("one")),
		sc("moved, stopped and moved again", halted, "", start, moveTo("zero"), stop, copyTo("one")),
	})
}

// TestOfflineMoves: the disks are on another node, and the old volumes are gone.
func TestOfflineMoves(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, homes: true, strategy: kubevirt.RunAlways,
		asks: []func(*world){setStrategy(kubevirt.RunHalted), copyTo("one")}})
	w.run()
	if got := w.migrations()["one"]; got != "Succeeded Copied node1->node2 completed true failed false " {
		t.Errorf("the migration: %q", got)
	}
	if got := w.claimsLeft(); !slices.Equal(got, []string{"web-data Bound 0 behind", "web-root Bound 0 behind"}) {
		t.Errorf("claims are %v", got)
	}
	var volumes corev1.PersistentVolumeList
	w.must(w.api.List(context.Background(), &volumes))
	for _, pv := range volumes.Items {
		if at := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchFields[0].Values[0]; at != "node2" {
			t.Errorf("volume %s is on %s", pv.Name, at)
		}
	}
	var sources cdiv1.VolumeCloneSourceList
	w.must(w.api.List(context.Background(), &sources))
	if len(sources.Items) > 0 || len(volumes.Items) != 2 {
		t.Errorf("%d sources and %d volumes are left", len(sources.Items), len(volumes.Items))
	}
}

// TestOfflineHolds: a machine that is started while its disks are copied waits, and says for what and how to end it.
func TestOfflineHolds(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, homes: true, strategy: kubevirt.RunAlways})
	w.settle()
	for _, ask := range []func(*world){setStrategy(kubevirt.RunHalted), nowhere(true), copyTo("one"), nowhere(false), setStrategy(kubevirt.RunAlways)} {
		ask(w)
		w.settle()
	}
	if text := why(w.vm()); !strings.Contains(text, "virtctl migrate-cancel web") || w.guests != 1 {
		t.Errorf("%d guests, and it says %q", w.guests, text)
	}
	if got := w.migrations()["one"]; !strings.HasPrefix(got, "Scheduling TargetUnschedulable") {
		t.Errorf("the migration: %q", got)
	}
}

// TestOfflineRefused: what cannot be moved, or need not be, says so.
func TestOfflineRefused(t *testing.T) {
	for name, c := range map[string]struct {
		sc    scenario
		asks  []func(*world)
		want  string
		words string
	}{
		"shared":  {scenario{strategy: kubevirt.RunHalted}, nil, "Failed NotMovable", "start it, and it goes where there is room"},
		"runs":    {scenario{strategy: kubevirt.RunAlways, local: true, class: true, homes: true}, nil, "Failed NotStopped", "stop it, or move it as it runs"},
		"classes": {scenario{strategy: kubevirt.RunAlways, local: true, homes: true}, []func(*world){setStrategy(kubevirt.RunHalted)}, "Failed NotMovable", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.sc)
			w.settle()
			for _, ask := range append(c.asks, copyTo("one")) {
				ask(w)
				w.settle()
			}
			m, err := cluster.Get[kubevirt.VirtualMachineInstanceMigration](context.Background(), w.api, ns, "one")
			w.must(err)
			if got := w.migrations()["one"]; !strings.HasPrefix(got, c.want) || !strings.Contains(m.Status.Conditions[0].Message, c.words) {
				t.Errorf("%s: %s", got, m.Status.Conditions[0].Message)
			}
		})
	}
}

// TestOfflineAdvice: a machine whose node selector was changed while its disks are on another node says how to have them moved.
func TestOfflineAdvice(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, homes: true, strategy: kubevirt.RunAlways, asks: []func(*world){setStrategy(kubevirt.RunHalted), nowhere(true),
		func(w *world) {
			w.change(false, func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "b"} })
		}, setStrategy(kubevirt.RunAlways)}})
	w.run()
	if text := why(w.vm()); !strings.Contains(text, "is on node node1") || !strings.Contains(text, "virtctl migrate web") {
		t.Errorf("it says %q", text)
	}
}

// TestOfflineForeignSource: a clone source that a user has made under the migration's name would be copied from, so nothing is
// copied, and it is not deleted. When it is gone the disks are copied.
func TestOfflineForeignSource(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, homes: true, strategy: kubevirt.RunAlways, asks: []func(*world){setStrategy(kubevirt.RunHalted)}})
	w.run()
	name := render.ReplacementName("one-uid", "root")
	foreign := &cdiv1.VolumeCloneSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: "somebody"},
		Spec: cdiv1.VolumeCloneSourceSpec{Source: corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "secret"}}}
	w.must(w.api.Create(context.Background(), foreign))
	copyTo("one")(w)
	var refused error
	for range 50 {
		if _, err := w.migrate(context.Background(), ctrl.Request{}); err != nil {
			refused = err
		}
		w.turn()
	}
	if refused == nil || !strings.Contains(refused.Error(), "VolumeCloneSource "+name+" is not the migration's own: delete it") {
		t.Errorf("it says %v", refused)
	}
	if c, err := cluster.Get[corev1.PersistentVolumeClaim](context.Background(), w.api, ns, name); err != nil || c != nil {
		t.Errorf("a claim was made: %v %v", c, err)
	}
	w.must(w.api.Delete(context.Background(), foreign))
	w.settle()
	if got := w.migrations()["one"]; !strings.HasPrefix(got, "Succeeded Copied") {
		t.Errorf("the migration: %q", got)
	}
}
