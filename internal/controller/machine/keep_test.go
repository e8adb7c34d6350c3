package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// keeper is a world where machine a has copies, and whose launcher writes to the claims that it is given.
type keeper struct {
	*world
	words map[string]launcherapi.Keep // what the launcher has said, by the claim's UID
	end   launcherapi.Keep            // how it ends; nothing: it goes on
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	k := &keeper{words: map[string]launcherapi.Keep{}}
	k.world = sharers(t, func(_ string, i *kubevirt.VirtualMachineInstance) {
		for v := range i.Spec.Volumes {
			i.Spec.Volumes[v].Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite}
		}
	})
	k.r.Read.Ask = k.says
	return k
}

// says plays the launcher: it writes while it is told to and a holder hands the claim over.
func (k *keeper) says(p *corev1.Pod) (launcherapi.Returns, error) {
	var d launcherapi.Disks
	_ = json.Unmarshal([]byte(p.Annotations[render.AnnDisks]), &d)
	said := launcherapi.Returns{Serial: d.Serial, Copies: map[string]launcherapi.Copy{"one": {Mode: kubevirt.CopyOnWrite, Size: 1 << 20}}}
	if len(d.Added) > 0 {
		k.t.Fatalf("the guest is given %v", d.Added)
	}
	var holders corev1.PodList
	k.must(k.api.List(context.Background(), &holders, client.MatchingLabels{render.LabelMachine: render.HotplugDisk}))
	for name, order := range d.Keeps {
		handed := slices.ContainsFunc(holders.Items, func(h corev1.Pod) bool { return h.Labels[render.LabelVolume] == name && pods.Ready(&h) })
		if !handed || k.words[order.Claim].Over() {
			continue
		}
		if c := k.claim("mine"); c == nil || string(c.UID) != order.Claim || c.Annotations[names.PodPhase] != string(corev1.PodRunning) {
			k.t.Fatalf("a claim is written to that does not say so: %+v", c)
		}
		k.words[order.Claim] = launcherapi.Keep{Done: 45, Total: 100}
		if k.end.Over() {
			k.words[order.Claim] = k.end
		} else {
			said.Has = append(said.Has, name)
		}
	}
	said.Keeps = maps.Clone(k.words)
	return said, nil
}

func (k *keeper) claim(name string) *corev1.PersistentVolumeClaim {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](context.Background(), k.api, ns, name)
	k.must(err)
	return c
}

// order makes a claim for a copy.
func (k *keeper) order(name, from string) {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name)}}
	if from != "" {
		c.Annotations = map[string]string{names.KeptFrom: from}
	}
	c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	k.must(k.api.Create(context.Background(), c))
	k.bind(c)
}

// ask has the instance keep its copy of volume one.
func (k *keeper) ask(claim string) {
	i := k.named("a")
	at := slices.IndexFunc(i.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Name == "one" })
	i.Spec.Volumes[at].KeepAs = claim
	k.must(k.api.Update(context.Background(), i))
}

func (k *keeper) keeps() kubevirt.KeepStatus {
	k.t.Helper()
	for _, v := range k.named("a").Status.VolumeStatus {
		if v.Copy != nil && v.Copy.Keep != nil {
			return *v.Copy.Keep
		}
	}
	return kubevirt.KeepStatus{}
}

// holders are the pods that hand claims over.
func (k *keeper) holders() (out []string) {
	var list corev1.PodList
	k.must(k.api.List(context.Background(), &list, client.MatchingLabels{render.LabelMachine: render.HotplugDisk}))
	for _, p := range list.Items {
		out = append(out, p.Name)
	}
	return out
}

// TestKeptCopies: a copy is kept in the claim that was made for it, whatever write is refused or is the controller's last. The claim never
// looks complete before the launcher has said that it is; a machine that is deleted meanwhile ends after it; then nothing but the claim is left.
func TestKeptCopies(t *testing.T) {
	scene := func(t *testing.T, at int, kind faults.Kind) (writes int) {
		k := newKeeper(t)
		k.faults.At, k.faults.Kind = at, kind
		k.both([]string{"a"}, false)
		k.order("mine", "run-a/one")
		k.ask("mine")
		k.both([]string{"a"}, false)
		if got := k.keeps(); got.Reason != "Writing" || got.Progress != "45%" || got.ClaimName != "mine" {
			t.Fatalf("it says %+v", got)
		}
		if proof, lacks := clonesource.Complete(k.claim("mine")); proof != clonesource.Unproven || !strings.Contains(lacks, "keep its disk in it") {
			t.Errorf("half of it: %q, %q", proof, lacks)
		}
		k.must(k.api.Delete(context.Background(), k.named("a")))
		k.both([]string{"a"}, false)
		i := k.named("a")
		if i == nil || len(k.going()) != 1 || i.Status.Reason != string(state.Keeping) || !strings.Contains(i.Status.Conditions[0].Message, "volume one is being kept in PersistentVolumeClaim mine (45%)") {
			t.Fatalf("deleted meanwhile it says %+v", i)
		}
		k.end = launcherapi.Keep{Done: 100, Total: 100, Written: true}
		k.both([]string{"a"}, false)
		if proof, lacks := clonesource.Complete(k.claim("mine")); proof != clonesource.Transferred || k.claim("mine").Annotations[names.DiskSize] != "100" {
			t.Errorf("all of it: %q, %q", proof, lacks)
		}
		if left := k.records(); k.named("a") != nil || len(k.holders()) > 0 || len(left) > 0 {
			t.Errorf("left: instance %v, pods %v, records %v", k.named("a") != nil, k.holders(), left)
		}
		return k.faults.Writes
	}
	last := scene(t, -1, faults.Kinds[0])
	for at := range last {
		for _, kind := range faults.Kinds {
			t.Run(fmt.Sprintf("%d %s", at, kind), func(t *testing.T) { scene(t, at, kind) })
		}
	}
}

// TestKeepGoesOn: a machine that is not deleted continues to run after its copy was kept, and no pod has the claim any more.
func TestKeepGoesOn(t *testing.T) {
	k := newKeeper(t)
	k.end = launcherapi.Keep{Done: 100, Total: 100, Written: true}
	k.both([]string{"a"}, false)
	k.order("mine", "run-a/one")
	k.ask("mine")
	k.both([]string{"a"}, false)
	if got := k.keeps(); got.Reason != "Kept" || got.Progress != "100%" {
		t.Errorf("it says %+v", got)
	}
	if len(k.records()) != 2 || len(k.holders()) > 0 || len(k.going()) != 1 { // those of its masters
		t.Errorf("left: pods %v, records %v", k.holders(), k.records())
	}
}

// TestKeepRefused: nothing is written to a claim that was not made for this copy of this run, whichever user asks; and a claim
// that asks by itself gets nothing. What failed is said, its claim is free, and is not complete.
func TestKeepRefused(t *testing.T) {
	for name, row := range map[string]struct {
		from   string
		change func(*corev1.PersistentVolumeClaim)
		reason string
	}{
		"a claim with data": {"", nil, "ClaimNotForIt"},
		"another volume's":  {"run-a/two", nil, "ClaimNotForIt"},
		"another run's":     {"run-b/one", nil, "ClaimNotForIt"},
		"somebody's who fills it": {"run-a/one", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "X", Name: "x"}
		}, "ClaimNotForIt"},
		"owned": {"run-a/one", func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}}
		}, "ClaimNotForIt"},
		"none at all": {"-", nil, "ClaimMissing"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper(t)
			k.both([]string{"a"}, false)
			if row.from != "-" {
				k.order("mine", row.from)
			}
			if row.change != nil {
				c := k.claim("mine")
				row.change(c)
				k.must(k.api.Update(context.Background(), c))
			}
			before := k.claim("mine")
			k.ask("mine")
			k.both([]string{"a"}, false)
			if got := k.keeps(); got.Reason != row.reason || !strings.Contains(got.Message, "mine") {
				t.Errorf("it says %+v", got)
			}
			if len(k.holders()) > 0 || len(k.words) > 0 || before != nil && !maps.Equal(before.Annotations, k.claim("mine").Annotations) {
				t.Errorf("the claim was touched: %v, %+v", k.holders(), k.claim("mine"))
			}
			k.must(k.api.Delete(context.Background(), k.named("a")))
			k.both([]string{"a"}, false)
			if k.named("a") != nil {
				t.Error("a machine waits for a claim that never comes")
			}
		})
	}
	k := newKeeper(t)
	k.both([]string{"a"}, false)
	k.order("mine", "run-a/one")
	k.both([]string{"a"}, false)
	if len(k.holders()) > 0 || k.claim("mine").Annotations[names.PodPhase] != "" {
		t.Error("a claim that asks by itself is written to")
	}
	k.end = launcherapi.Keep{Failed: "the claim is too small"}
	k.ask("mine")
	k.both([]string{"a"}, false)
	if got := k.keeps(); got.Reason != "Failed" || !strings.Contains(got.Message, "the claim is too small; delete PersistentVolumeClaim mine") {
		t.Errorf("it says %+v", got)
	}
	if proof, _ := clonesource.Complete(k.claim("mine")); proof != clonesource.Unproven || len(k.holders()) > 0 || len(k.going()) != 1 {
		t.Errorf("after it failed: %q, pods %v", proof, k.holders())
	}
	if len(k.claim("mine").Annotations) != 2 {
		t.Errorf("the claim has %v", k.claim("mine").Annotations)
	}
}

// TestKeepHoldsNobodyOnALostNode: the launcher's last report before its node was lost does not block the deletion of an instance.
func TestKeepHoldsNobodyOnALostNode(t *testing.T) {
	now := metav1.Now()
	s := &observed.Instance{Run: diskstate.Run{Object: &kubevirt.VirtualMachineInstance{}, Launcher: &corev1.Pod{}}, KeptCopies: []*observed.Kept{{Volume: "one", Plan: machine.KeepPlan{Hold: true}}}}
	s.Object.DeletionTimestamp = &now
	if f := s.Facts(); f.Leaving {
		t.Error("it leaves before its disk is kept")
	}
	s.Away = true
	if f := s.Facts(); !f.Leaving || report.Row(s, state.Stopping).Reason == state.Keeping {
		t.Errorf("it waits for a node that is away: %+v, %+v", f, report.Row(s, state.Stopping))
	}
}
