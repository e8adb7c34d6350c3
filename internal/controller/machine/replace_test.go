package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// contents is the content of volumes: how many guests have written to them, counted for each disk of the machine.
type contents struct {
	newest map[string]int // by disk
	on     map[string]int // by the handle of the volume
}

// run has a guest write to its disks. One that is started finds what the last one wrote; one that comes brings it along.
func (c *contents) run(w *world, p *corev1.Pod, comes bool) {
	w.t.Helper()
	if c.newest == nil {
		c.newest, c.on = map[string]int{}, map[string]int{}
	}
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := cluster.Get[corev1.PersistentVolumeClaim](context.Background(), w.api, ns, v.PersistentVolumeClaim.ClaimName)
		w.must(err)
		if claim == nil || claim.Spec.VolumeName == "" {
			w.t.Errorf("pod %s runs a guest whose disk %s is nowhere", p.Name, v.Name)
			continue
		}
		at := w.handle(claim)
		if was := c.on[at]; !comes && was != c.newest[v.Name] {
			w.t.Errorf("pod %s starts with disk %s as guest %d left it, and %d wrote to it since", p.Name, v.Name, was, c.newest[v.Name])
		}
		c.newest[v.Name]++
		c.on[at] = c.newest[v.Name]
	}
}

// handle is the volume that a claim leads to, whichever PersistentVolume of it the claim has.
func (w *world) handle(c *corev1.PersistentVolumeClaim) string {
	pv, err := cluster.Get[corev1.PersistentVolume](context.Background(), w.api, "", c.Spec.VolumeName)
	w.must(err)
	if pv == nil {
		return ""
	}
	return behindVolume(pv)
}

func behindVolume(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI == nil {
		return pv.Name
	}
	return pv.Spec.CSI.VolumeHandle
}

func (w *world) class() *string {
	if !w.sc.class {
		return nil
	}
	return new("local")
}

// reclaim simulates what Kubernetes does with volumes: it binds a claim to the volume that is reserved for it, and deletes volumes
// whose claims are gone.
func (w *world) reclaim() bool {
	ctx := context.Background()
	var list corev1.PersistentVolumeList
	w.must(w.api.List(ctx, &list))
	for i := range list.Items {
		pv := &list.Items[i]
		if pv.Spec.ClaimRef == nil || !w.sc.class {
			continue
		}
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, w.api, ns, pv.Spec.ClaimRef.Name)
		w.must(err)
		switch {
		case c == nil || c.UID != pv.Spec.ClaimRef.UID:
			if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
				continue
			}
			w.must(w.api.Delete(ctx, pv))
			delete(w.data.on, behindVolume(pv))
			return true
		case (c.Spec.VolumeName == pv.Name || c.Spec.VolumeName == "") && c.Status.Phase != corev1.ClaimBound:
			if c.Spec.VolumeName == "" {
				c.Spec.VolumeName = pv.Name
				w.must(w.api.Update(ctx, c))
			}
			c.Status.Phase = corev1.ClaimBound
			w.must(w.api.Status().Update(ctx, c))
			return true
		}
	}
	return false
}

// claimsLeft are the claims and how old what they have is.
func (w *world) claimsLeft() []string {
	if !w.sc.class {
		return nil
	}
	var list corev1.PersistentVolumeClaimList
	w.must(w.api.List(context.Background(), &list))
	var out []string
	for _, c := range list.Items {
		disk := strings.TrimPrefix(c.Name, vmName+"-")
		if v := c.Labels[render.LabelVolume]; v != "" {
			disk = v
		}
		out = append(out, fmt.Sprintf("%s %s %d behind", c.Name, c.Status.Phase, w.data.newest[disk]-w.data.on[w.handle(&c)]))
	}
	slices.Sort(out)
	return out
}

// TestFollowLoop: the data of claims that one node can have goes along with a guest, whatever happens to the controller; the machine
// never starts with what was there before; and the claims have their names and their data again when it has stopped.
func TestFollowLoop(t *testing.T) {
	up, running, halted := kubevirt.PhaseRunning, kubevirt.StatusRunning, kubevirt.StatusStopped
	always := kubevirt.RunAlways
	stop, start := setStrategy(kubevirt.RunHalted), setStrategy(kubevirt.RunAlways)
	one := moveTo("one")
	loop(t, []scenario{
		{name: "there", local: true, class: true, strategy: always, asks: []func(*world){one}, status: running, phase: up},
		{name: "there and stopped", local: true, class: true, strategy: always, asks: []func(*world){one, stop}, status: halted},
		{name: "there, stopped and started", local: true, class: true, strategy: always, asks: []func(*world){one, stop, start}, status: running, phase: up},
		{name: "there and restarted", local: true, class: true, strategy: always, asks: []func(*world){one, requests(kubevirt.StopRequest, kubevirt.StartRequest)},
			status: running, phase: up},
		{name: "there and back", local: true, class: true, strategy: always, asks: []func(*world){one, moveTo("two")}, status: running, phase: up},
		{name: "there, back and stopped", local: true, class: true, strategy: always, asks: []func(*world){one, moveTo("two"), stop}, status: halted},
		{name: "the target hears of it from the controller", local: true, class: true, strategy: always, move: movesUntold, asks: []func(*world){one, stop}, status: halted},
		{name: "cannot be sent", local: true, class: true, strategy: always, move: keeps, asks: []func(*world){one}, status: running, phase: up},
		{name: "cancelled", local: true, class: true, strategy: always, move: staysSending, asks: []func(*world){one, cancel("one")}, status: running, phase: up},
		{name: "target dies", local: true, class: true, strategy: always, move: targetDies, asks: []func(*world){one}, status: running, phase: up},
		{name: "target cannot", local: true, class: true, strategy: always, move: targetNever, asks: []func(*world){one}, status: running, phase: up},
		{name: "with a disk that was added", local: true, class: true, strategy: always, asks: []func(*world){addDisk(false), one}, status: running, phase: up},
		{name: "with a disk that was added, and stopped", local: true, class: true, strategy: always, asks: []func(*world){addDisk(false), one, stop}, status: halted},
		{name: "with a disk that was added, there and back, and removed", local: true, class: true, strategy: always,
			asks: []func(*world){addDisk(false), one, moveTo("two"), removeDisk, stop}, status: halted},
		{name: "deleted while it moves", local: true, class: true, strategy: always, move: staysSending, asks: []func(*world){one, remove}},
		{name: "stopped while it moves", local: true, class: true, strategy: always, move: staysSending, asks: []func(*world){one, stop}, status: halted},
	})
}

// TestFollowAdded: a disk that was added for this run alone comes along, and its claim has its name and its data when the machine stops.
func TestFollowAdded(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways,
		asks: []func(*world){addDisk(false), moveTo("one"), setStrategy(kubevirt.RunHalted)}})
	w.run()
	if got := w.migrations()["one"]; !strings.HasPrefix(got, "Succeeded Moved") {
		t.Errorf("the migration: %s", got)
	}
	if got := w.data.newest["extra"]; got != 1 {
		t.Errorf("%d guests came with the added disk", got)
	}
	if got := w.claimsLeft(); !slices.Equal(got, []string{"extra Bound 0 behind", "web-data Bound 0 behind", "web-root Bound 0 behind"}) {
		t.Errorf("claims are %v", got)
	}
}

// TestFollowSourceDies: a source that ends on the way leaves the data where it was, and nothing of the target.
func TestFollowSourceDies(t *testing.T) {
	for _, kind := range append([]faults.Kind{""}, faults.Kinds...) {
		t.Run(string(kind), func(t *testing.T) {
			w := newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways, move: sourceDies, asks: []func(*world){moveTo("one")}})
			w.faults.Kind = kind
			w.run()
			if got := w.migrations()["one"]; !strings.HasPrefix(got, "Failed NotRunning") || w.guests != 2 {
				t.Errorf("%s, and %d guests were started", got, w.guests)
			}
			if got := w.claimsLeft(); !slices.Equal(got, []string{"web-data Bound 0 behind", "web-root Bound 0 behind"}) {
				t.Errorf("claims are %v", got)
			}
		})
	}
}

// TestFollowSaid: the instance names the claims that people know after a move, and nothing of a move is left when it has stopped.
func TestFollowSaid(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways})
	w.settle()
	was := w.claimsLeft()
	moveTo("one")(w)
	w.settle()
	for _, v := range w.instance().Status.VolumeStatus {
		if got, want := v.PersistentVolumeClaimInfo.ClaimName, "web-"+v.Name; got != want {
			t.Errorf("disk %s is said to be in claim %s, not %s", v.Name, got, want)
		}
	}
	if w.instance().Status.MigrationMethod != "BlockMigration" {
		t.Errorf("method %s", w.instance().Status.MigrationMethod)
	}
	setStrategy(kubevirt.RunHalted)(w)
	w.settle()
	if got := w.claimsLeft(); !slices.Equal(got, was) {
		t.Errorf("claims are %v, and were %v", got, was)
	}
	var list corev1.PersistentVolumeList
	w.must(w.api.List(context.Background(), &list))
	for _, pv := range list.Items {
		if pv.Labels[replacedclaim.Label] != "" || pv.Annotations[replacedclaim.By] != "" {
			t.Errorf("volume %s still bears %v %v", pv.Name, pv.Labels, pv.Annotations)
		}
	}
}

// TestFollowLost: a machine whose volume vanished since it moved does not continue with old data as if nothing had happened.
func TestFollowLost(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways})
	w.settle()
	w.stay = true
	moveTo("one")(w)
	w.settle()
	setStrategy(kubevirt.RunHalted)(w)
	ctx := context.Background()
	name := "pv-move-one-uid-data"
	w.must(w.api.Delete(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	w.must(w.api.Delete(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: strings.TrimPrefix(name, "pv-")}}))
	w.stay = false
	w.settle()
	setStrategy(kubevirt.RunAlways)(w)
	w.settle()
	if i := w.instance(); i == nil || i.Status.Phase == kubevirt.PhaseRunning {
		t.Errorf("the machine runs with old data")
	}
	if text := why(w.vm()); !strings.Contains(text, "which is gone: restore it from a backup") {
		t.Errorf("it says %q", text)
	}
}

// TestFollowForeign: a claim that a user made under the name of a claim whose data moved is neither used nor deleted, and the
// machine reports what to do about it; when it is gone the machine continues with its own data.
func TestFollowForeign(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways})
	w.settle()
	w.stay = true
	moveTo("one")(w)
	w.settle()
	ctx := context.Background()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: vmName + "-data"}}
	w.must(w.api.Delete(ctx, claim.DeepCopy()))
	w.must(w.api.Delete(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim.Name}}))
	claim.UID, claim.Spec.AccessModes, claim.Spec.StorageClassName = "foreign", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, w.class()
	w.must(w.api.Create(ctx, claim))
	w.bind(claim)
	w.stay = false
	setStrategy(kubevirt.RunHalted)(w)
	w.settle()
	setStrategy(kubevirt.RunAlways)(w)
	w.settle()
	if text := why(w.vm()); !strings.Contains(text, "delete that claim, and the machine goes on with its own data") || w.guests != 1 {
		t.Errorf("%d guests were started, and it says %q", w.guests, text)
	}
	w.must(w.api.Delete(ctx, claim))
	w.settle()
	if w.guests != 2 || w.vm().Status.PrintableStatus != kubevirt.StatusRunning {
		t.Errorf("%d guests were started: %s %s", w.guests, w.vm().Status.PrintableStatus, why(w.vm()))
	}
}

// TestFollowUnheard: the source ended without a word after it had told its target: the target runs the guest, and stays the only one.
func TestFollowUnheard(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways, move: staysSending})
	w.settle()
	moveTo("one")(w)
	w.settle()
	for _, p := range w.launcherPods() {
		if launcherpod.Orders(&p).Pod == "" {
			w.data.run(w, &p, true)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		} else {
			w.end(&p, launcherapi.Report{End: launcherapi.Crashed, Detail: "it died"})
		}
		w.must(w.api.Status().Update(context.Background(), &p))
	}
	w.settle()
	if got := w.migrations()["one"]; !strings.HasPrefix(got, "Succeeded Moved") || w.guests != 1 {
		t.Errorf("%s, and %d guests were started", got, w.guests)
	}
	setStrategy(kubevirt.RunHalted)(w)
	w.settle()
	setStrategy(kubevirt.RunAlways)(w)
	w.settle()
	if w.guests != 2 {
		t.Errorf("%d guests were started", w.guests)
	}
}

func why(vm *kubevirt.VirtualMachine) string {
	for _, c := range vm.Status.Conditions {
		if c.Type == "Ready" {
			return c.Message
		}
	}
	return ""
}

// TestFollowAtOnce: when a move has succeeded, the claims under their own names have the guest's data, the old volumes are gone,
// and both PersistentVolumes of one volume are kept; after several moves and a stop one of them is left, with the policy of its
// class. A claim that a user deletes while the guest runs stays until the machine stops, as one does that a pod mounts.
func TestFollowAtOnce(t *testing.T) {
	w := newWorld(t, scenario{local: true, class: true, strategy: kubevirt.RunAlways})
	w.settle()
	for n, name := range []string{"one", "two", "three"} {
		moveTo(name)(w)
		w.settle()
		if got := w.migrations()[name]; !strings.HasPrefix(got, "Succeeded Moved") {
			t.Fatalf("move %d: %s", n+1, got)
		}
		for _, claim := range []string{"web-root", "web-data"} {
			if current, err := replacedclaim.Current(context.Background(), w.api, ns, claim); err != nil || !current {
				t.Errorf("after move %d claim %s does not have the data of now: %v", n+1, claim, err)
			}
		}
		for _, line := range w.claimsLeft() {
			if !strings.HasSuffix(line, " Bound 0 behind") {
				t.Errorf("after move %d: %s", n+1, line)
			}
		}
		if got := w.policies(); !maps.Equal(got, map[string]int{"Retain": 4}) {
			t.Errorf("after move %d the volumes are %v", n+1, got)
		}
	}
	c, err := cluster.Get[corev1.PersistentVolumeClaim](context.Background(), w.api, ns, "web-data")
	w.must(err)
	w.must(w.api.Delete(context.Background(), c))
	w.settle()
	if got := w.claimsLeft(); len(got) != 4 {
		t.Errorf("a claim that is deleted under a running machine is gone: %v", got)
	}
	setStrategy(kubevirt.RunHalted)(w)
	w.settle()
	if got := w.claimsLeft(); !slices.Equal(got, []string{"web-root Bound 0 behind"}) {
		t.Errorf("claims are %v", got)
	}
	if got := w.policies(); !maps.Equal(got, map[string]int{"Delete": 1}) {
		t.Errorf("the volumes are %v", got)
	}
}

// policies counts the PersistentVolumes by their reclaim policies.
func (w *world) policies() map[string]int {
	var list corev1.PersistentVolumeList
	w.must(w.api.List(context.Background(), &list))
	out := map[string]int{}
	for _, pv := range list.Items {
		out[string(pv.Spec.PersistentVolumeReclaimPolicy)]++
	}
	return out
}
