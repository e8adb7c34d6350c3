package machine

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/migration"
	"github.com/berth-vm/berth/internal/controller/volumeupdate"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// otherClaim makes a claim that is to have the disk of volume root.
func otherClaim(name string, change func(*corev1.PersistentVolumeClaim)) func(*world) {
	return func(w *world) {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name + "-uid"),
			Labels: map[string]string{render.LabelVolume: "root"}},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: w.class()}}
		if change != nil {
			change(c)
		}
		w.must(w.api.Create(context.Background(), c, client.FieldOwner("somebody")))
	}
}

// boundClaim makes one that has its volume already, on that node.
func boundClaim(name, at string) func(*world) {
	return func(w *world) {
		otherClaim(name, nil)(w)
		c, err := cluster.Get[corev1.PersistentVolumeClaim](context.Background(), w.api, ns, name)
		w.must(err)
		w.bind(c)
		w.place(c, at)
	}
}

// rootIn changes volume root to a claim.
func rootIn(claim string) func(*world) {
	return func(w *world) {
		w.clock.SetTime(w.clock.Now().Add(time.Minute)) // two changes are never of the same second
		w.change(false, func(vm *kubevirt.VirtualMachine) {
			vm.Spec.UpdateVolumesStrategy = ptr.To(kubevirt.UpdateByMigration)
			source := kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: claim}}
			if claim == "other" {
				source = kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{}}
				source.PersistentVolumeClaim.ClaimName = claim
			}
			vm.Spec.Template.Spec.Volumes[0].VolumeSource = source
		})
	}
}

// TestUpdateLoop: the disk of a volume that was changed to another claim is sent there, whatever happens to the controller; the machine has
// all its data at every start, and does not start with a part of it.
func TestUpdateLoop(t *testing.T) {
	up, running, halted := kubevirt.PhaseRunning, kubevirt.StatusRunning, kubevirt.StatusStopped
	stop, start := setStrategy(kubevirt.RunHalted), setStrategy(kubevirt.RunAlways)
	sc := func(name string, how fate, status kubevirt.PrintableStatus, phase kubevirt.Phase, asks ...func(*world)) scenario {
		return scenario{name: name, local: true, class: true, strategy: kubevirt.RunAlways, move: how, status: status, phase: phase,
			asks: append([]func(*world){otherClaim("other", nil)}, asks...)}
	}
	loop(t, []scenario{
		sc("sent", moves, running, up, rootIn("other")),
		sc("sent, and the target hears of it from the controller", movesUntold, running, up, rootIn("other")),
		sc("sent, stopped and started", moves, running, up, rootIn("other"), stop, start),
		sc("sent and back", moves, running, up, rootIn("other"), rootIn("web-root")),
		sc("sent, moved and stopped", moves, halted, "", rootIn("other"), moveTo("one"), stop),
		sc("taken back", staysSending, running, up, rootIn("other"), rootIn("web-root")),
		sc("stopped meanwhile, taken back and started", staysSending, running, up, rootIn("other"), stop, rootIn("web-root"), start),
		sc("stopped meanwhile and started", staysSending, kubevirt.StatusDataVolumeError, kubevirt.PhasePending, rootIn("other"), stop, start),
		sc("deleted meanwhile", staysSending, "", "", rootIn("other"), remove),
	})
	at := func(name string, how fate, status kubevirt.PrintableStatus, phase kubevirt.Phase, asks ...func(*world)) scenario {
		return scenario{name: name, local: true, class: true, homes: true, strategy: kubevirt.RunAlways, move: how, status: status, phase: phase,
			asks: append([]func(*world){boundClaim("other", "node1")}, asks...)}
	}
	loop(t, []scenario{
		at("sent on its own node, stopped and started", moves, running, up, rootIn("other"), stop, start),
		at("taken back on its own node", staysSending, running, up, rootIn("other"), rootIn("web-root")),
	})
}

// TestUpdateAtHome: where a volume is changed to a claim on the guest's own node, the guest stays there, and its other claims are opened by
// both launchers: none is copied, but those that only one pod can have, and those that have moved already.
func TestUpdateAtHome(t *testing.T) {
	once := func(w *world) {
		c, err := cluster.Get[corev1.PersistentVolumeClaim](context.Background(), w.api, ns, "web-data")
		w.must(err)
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		w.must(w.api.Update(context.Background(), c))
	}
	everywhere := func(w *world) {
		pv, err := cluster.Get[corev1.PersistentVolume](context.Background(), w.api, "", "pv-other")
		w.must(err)
		pv.Spec.NodeAffinity.Required.NodeSelectorTerms = append(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, migration.OnlyOn("node2").NodeSelectorTerms...)
		w.must(w.api.Update(context.Background(), pv))
	}
	for name, c := range map[string]struct {
		before         []func(*world)
		at, node, data string
	}{
		"there":                {at: "node1", node: "node1", data: "web-data"},
		"one pod's":            {before: []func(*world){once}, at: "node1", node: "node1", data: "move-"},
		"there and elsewhere":  {before: []func(*world){everywhere}, at: "node1", node: "node2", data: "move-"},
		"elsewhere":            {at: "node2", node: "node2", data: "move-"},
		"after another change": {before: []func(*world){otherClaim("first", nil), rootIn("first")}, at: "node2", node: "node2", data: "move-"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, scenario{local: true, class: true, homes: true, strategy: kubevirt.RunAlways})
			w.settle()
			boundClaim("other", c.at)(w)
			for _, before := range c.before {
				before(w)
				w.settle()
			}
			rootIn("other")(w)
			w.settle()
			i := w.instance()
			root, _ := render.ClaimOf(i.Spec.Volumes[0])
			data := ""
			for _, v := range w.launcherPods()[0].Spec.Volumes {
				if v.Name == "data" {
					data = v.PersistentVolumeClaim.ClaimName
				}
			}
			if root != "other" || i.Status.NodeName != c.node || !strings.HasPrefix(data, c.data) || w.guests != 1 {
				t.Errorf("disk root is in %s, data in %s, on %s; %d guests were started", root, data, i.Status.NodeName, w.guests)
			}
			if left := strings.Join(w.claimsLeft(), ", "); strings.Contains(left, "move-") != (c.data == "move-") {
				t.Errorf("there are claims %s", left)
			}
		})
	}
}

// TestUpdateSaid: what people read while a disk is sent into another claim, and after.
func TestUpdateSaid(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways, move: staysSending, asks: []func(*world){otherClaim("other", nil), rootIn("other")}})
	w.run()
	i := w.instance()
	if text := conditionText(i.Status.Conditions, "VolumesChange"); !strings.Contains(text, "True") || !strings.Contains(text, "volume root to PersistentVolumeClaim other") {
		t.Errorf("it says %q", text)
	}
	if m := i.Status.MigratedVolumes; len(m) != 1 || m[0].VolumeName != "root" || m[0].SourcePVCInfo.ClaimName != "web-root" || m[0].DestinationPVCInfo.ClaimName != "other" {
		t.Errorf("migrated volumes: %+v", m)
	}
	if name, _ := render.ClaimOf(i.Spec.Volumes[0]); name != "web-root" {
		t.Errorf("the instance names %s before its disk is there", name)
	}
	setStrategy(kubevirt.RunHalted)(w)
	w.settle()
	if text := conditionText(w.vm().Status.Conditions, "ManualRecoveryRequired"); !strings.Contains(text, "change the volume back") {
		t.Errorf("the machine says %q", text)
	}

	w = newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways, asks: []func(*world){otherClaim("other", nil), rootIn("other")}})
	w.run()
	if name, _ := render.ClaimOf(w.instance().Spec.Volumes[0]); name != "other" || w.guests != 1 || w.instance().Status.NodeName != "node2" {
		t.Errorf("the instance names %s on %s, and %d guests were started", name, w.instance().Status.NodeName, w.guests)
	}
	if text := conditionText(w.instance().Status.Conditions, "VolumesChange"); text != "" {
		t.Errorf("it still says %q", text)
	}
	c, err := cluster.Get[corev1.PersistentVolumeClaim](context.Background(), w.api, ns, "other")
	w.must(err)
	if c.Annotations[render.AnnReceives] != "" {
		t.Error("the claim still counts as one that has a part")
	}
}

func conditionText(all []kubevirt.Condition, kind string) string {
	for _, c := range all {
		if string(c.Type) == kind {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

// podWith returns a user's pod with a claim.
func podWith(name, claim string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: "somebody's"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		Spec: corev1.PodSpec{NodeName: "node1", Volumes: []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}}
}

// TestUpdateRefused: what cannot be sent into another claim is named in one line, and nothing is done about it.
func TestUpdateRefused(t *testing.T) {
	size := func(s string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(s)}
		}
	}
	drive := func(d kubevirt.Disk) func(*world) {
		return func(w *world) {
			w.change(false, func(vm *kubevirt.VirtualMachine) {
				d.Name = "root"
				vm.Spec.Template.Spec.Domain.Devices.Disks = []kubevirt.Disk{d}
			})
		}
	}
	for name, c := range map[string]struct {
		before func(*world)
		claim  func(*corev1.PersistentVolumeClaim)
		to     string
		says   string
	}{
		"no claim":     {to: "absent", says: "absent, which is not there: make it"},
		"smaller":      {to: "other", claim: size("1Gi"), says: "which is smaller than the one that it is in (2147483648 and 1073741824 bytes)"},
		"another mode": {to: "other", claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }, says: "(Filesystem and Block)"},
		"another disk": {to: "web-data", says: "which volume data of the machine is in"},
		"shared":       {before: drive(kubevirt.Disk{Shareable: ptr.To(true)}), to: "other", says: "is shared with other machines"},
		"a pod":        {before: func(w *world) { w.must(w.api.Create(context.Background(), podWith("writer", "other"))) }, to: "other", says: "which pod writer has: stop it"},
		"LUN":          {before: drive(kubevirt.Disk{DiskDevice: kubevirt.DiskDevice{LUN: &kubevirt.LunTarget{}}}), to: "other", says: "is a LUN or a CD-ROM"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways})
			if c.before != nil {
				c.before(w)
			}
			w.settle()
			if name == "smaller" {
				root, err := cluster.Get[corev1.PersistentVolumeClaim](context.Background(), w.api, ns, "web-root")
				w.must(err)
				root.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
				w.must(w.api.Status().Update(context.Background(), root))
			}
			otherClaim("other", c.claim)(w)
			rootIn(c.to)(w)
			w.settle()
			text := conditionText(w.vm().Status.Conditions, "RestartRequired")
			if !strings.Contains(text, "invalid volumes to update with migration: volume root") || !strings.Contains(text, c.says) || strings.Contains(text, ";") {
				t.Errorf("it says %q", text)
			}
			if left := w.migrations(); len(left) > 0 {
				t.Errorf("migrations %v were made", left)
			}
		})
	}
}

// TestUpdateAtRestart: without a strategy a machine has the new claim from its next start on, and says so.
func TestUpdateAtRestart(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways})
	w.settle()
	otherClaim("other", nil)(w)
	rootIn("other")(w)
	w.change(false, func(vm *kubevirt.VirtualMachine) {
		vm.Spec.UpdateVolumesStrategy = ptr.To(kubevirt.UpdateByReplacement)
	})
	w.settle()
	if text := conditionText(w.vm().Status.Conditions, "RestartRequired"); !strings.Contains(text, "virtctl restart") || len(w.migrations()) > 0 {
		t.Errorf("it says %q, and there are migrations %v", text, w.migrations())
	}
}

// cordon keeps pods away from a node, or lets them in again.
func cordon(name string, closed bool) func(*world) {
	return func(w *world) {
		n, err := cluster.Get[corev1.Node](context.Background(), w.api, "", name)
		w.must(err)
		n.Spec.Unschedulable = closed
		w.must(w.api.Update(context.Background(), n))
	}
}

// TestUpdateClosed: a claim whose volume is on a node that takes no pods, or that the guest is to leave, is refused at once with what to do; no
// target waits there, and a guest that is to leave goes. When the node takes pods again the disk is sent.
func TestUpdateClosed(t *testing.T) {
	for name, c := range map[string]struct {
		at, node string // of the claim, and of the guest in the end
		asks     []func(*world)
		says     string // empty: the disk is in the claim
	}{
		"its own node":       {"node1", "node1", []func(*world){cordon("node1", true), rootIn("other")}, "whose volume is on node node1 alone, which is being emptied or takes no pods"},
		"another node":       {"node2", "node1", []func(*world){cordon("node2", true), rootIn("other")}, "whose volume is on node node2 alone"},
		"not that node":      {"node1", "node1", []func(*world){cordon("node2", true), rootIn("other")}, ""},
		"for a while":        {"node1", "node1", []func(*world){cordon("node1", true), rootIn("other"), cordon("node1", false)}, ""},
		"it is to leave":     {"node1", "node2", []func(*world){cordon("node1", true), rootIn("other"), drain}, "volume root has followed its guest to another node"},
		"it is to leave now": {"node1", "node2", []func(*world){drain, rootIn("other")}, "volume root has followed its guest to another node"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, scenario{local: true, class: true, homes: true, strategy: kubevirt.RunAlways, evict: kubevirt.EvictLiveMigrate})
			w.settle()
			boundClaim("other", c.at)(w)
			for _, ask := range c.asks {
				ask(w)
				if name != "it is to leave now" {
					w.settle()
				}
			}
			w.settle()
			i := w.instance()
			text, root := conditionText(i.Status.Conditions, "VolumesChange"), ""
			for _, v := range i.Status.VolumeStatus {
				if v.Name == "root" {
					root = v.PersistentVolumeClaimInfo.ClaimName
				}
			}
			if (root == "other") != (c.says == "") || !strings.Contains(text, c.says) || (text == "") != (c.says == "") || i.Status.NodeName != c.node || w.guests != 1 {
				t.Errorf("disk root is in %s, on %s, after %d starts; it says %q", root, i.Status.NodeName, w.guests, text)
			}
			for _, m := range w.migrations() {
				if strings.HasPrefix(m, volumeupdate.Updating) && c.says != "" {
					t.Errorf("migration %s was made", m)
				}
			}
		})
	}
}

// TestUpdateClosedMeanwhile: a target that waits for a node that takes no pods any more is called off; one that is there is not.
func TestUpdateClosedMeanwhile(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, homes: true, strategy: kubevirt.RunAlways, move: staysSending})
	w.settle()
	boundClaim("other", "node1")(w)
	rootIn("other")(w)
	w.settle()
	cordon("node1", true)(w)
	w.settle()
	if text := conditionText(w.instance().Status.Conditions, "VolumesChange"); !strings.Contains(text, "VolumesMigrating") || len(w.launcherPods()) != 2 {
		t.Errorf("with a target that is there it says %q", text)
	}
	for _, p := range w.launcherPods() {
		if launcherpod.Incoming(&p) != "" {
			p.Spec.NodeName = ""
			w.must(w.api.Update(context.Background(), &p))
		}
	}
	w.settle()
	if text := conditionText(w.instance().Status.Conditions, "VolumesChange"); !strings.Contains(text, "takes no pods") || len(w.launcherPods()) != 1 {
		t.Errorf("with one that waits it says %q", text)
	}
}

// TestUpdateIsLabelled: clients of upstream find the migrations of changed volumes by their label.
func TestUpdateIsLabelled(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways, move: staysSending})
	w.settle()
	otherClaim("other", nil)(w)
	rootIn("other")(w)
	w.settle()
	var list kubevirt.VirtualMachineInstanceMigrationList
	w.must(w.api.List(context.Background(), &list, client.MatchingLabels{kubevirt.LabelVolumeUpdate: vmName}))
	if len(list.Items) != 1 {
		t.Errorf("%d migrations have the label; there are %v", len(list.Items), w.migrations())
	}
}
