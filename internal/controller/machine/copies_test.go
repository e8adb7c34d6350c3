package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/probe"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/faults"
	"github.com/berth-vm/berth/pkg/claim"
)

// media are the pod's volumes for copies, each with its class, or "" for a directory of the node.
func (w *world) media(machine string) map[string]string {
	out := map[string]string{}
	var pods corev1.PodList
	w.must(w.api.List(context.Background(), &pods))
	for _, p := range pods.Items {
		for _, v := range p.Spec.Volumes {
			name, ok := strings.CutPrefix(v.Name, "berth-copy-")
			switch {
			case !ok || p.Labels["kubevirt.io/domain"] != machine:
			case v.Ephemeral != nil:
				spec := v.Ephemeral.VolumeClaimTemplate.Spec
				out[name] = *spec.StorageClassName
				size := spec.Resources.Requests[corev1.ResourceStorage]
				if need := launcherapi.CopyFile(1 << 30); size.Value() < need || size.Value() > need+need/5 {
					w.t.Errorf("the claim of copy %s has %s for %d bytes", name, &size, need)
				}
			default:
				out[name] = ""
			}
		}
	}
	return out
}

// TestUsageTypes: a copy is on the medium it names, else on the default one, else on the node. A machine that names a medium that
// no node offers has no pod, says which there are, and starts when a node offers it.
func TestUsageTypes(t *testing.T) {
	ctx := context.Background()
	class := func(name string, annotation string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotation: "true"}}, Provisioner: "p"}
	}
	w := sharers(t, func(_ string, i *kubevirt.VirtualMachineInstance) {
		gib := new(resource.MustParse("1Gi"))
		i.Spec.Volumes[0].Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Capacity: gib}
		i.Spec.Volumes[1].Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Capacity: gib, UsageType: "fast"}
		i.Spec.Volumes = append(i.Spec.Volumes, kubevirt.Volume{Name: "image", VolumeSource: kubevirt.VolumeSource{
			ContainerDisk: &kubevirt.ContainerDiskSource{Image: "i"}}})
	})
	says := func(want string) {
		t.Helper()
		i := w.named("a")
		if i.Status.Reason != string(state.UsageTypeMissing) || !strings.Contains(i.Status.Conditions[0].Message, want) {
			t.Errorf("it says %s: %s", i.Status.Reason, i.Status.Conditions[0].Message)
		}
		if got := w.media("a"); len(got) > 0 {
			t.Errorf("there is a pod with %v", got)
		}
		if n := len(i.Status.VolumeStatus); n != 2 {
			t.Errorf("%d volumes have a status: %+v", n, i.Status.VolumeStatus)
		}
	}
	w.both([]string{"a"}, true)
	says("usage type fast, which no StorageClass offers; none is offered at all: annotate a StorageClass with kubevirt.io/storage.usage-type.fast")
	w.must(w.api.Create(ctx, class("rust", claim.UsageTypePrefix+"slow")))
	w.both([]string{"a"}, true)
	says("there are: slow")
	w.must(w.api.Create(ctx, class("ssd", claim.UsageTypePrefix+"fast")))
	w.both([]string{"a"}, true)
	if got := w.media("a"); got["one"] != "" || got["two"] != "ssd" || got["image"] != "" || len(got) != 3 {
		t.Errorf("without a default class: %v", got)
	}
	w.must(w.api.Create(ctx, class("rest", claim.DefaultCopyClassAnnotation)))
	w.both([]string{"b"}, true)
	if got := w.media("b"); got["two"] != "rest" || got["one"] != "ssd" || got["image"] != "" || len(got) != 3 { // b has them in the other order
		t.Errorf("with a default class: %v", got)
	}
	// A medium that is no longer offered does not end a guest: its launcher has it already.
	for _, name := range []string{"ssd", "rust", "rest"} {
		c, err := cluster.Get[storagev1.StorageClass](ctx, w.api, "", name)
		w.must(err)
		w.must(w.api.Delete(ctx, c))
	}
	w.both([]string{"a", "b"}, true)
	if got := w.going(); len(got) != 2 {
		t.Errorf("%v run", got)
	}
}

// copier is a world where machine a copies both masters, which b wants to write, and whose launcher says how far the copies are.
func copier(t *testing.T, all *bool) *world {
	t.Helper()
	w := sharers(t, func(name string, i *kubevirt.VirtualMachineInstance) {
		if name == "a" {
			i.Spec.Volumes[0].Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyOnRead}
			i.Spec.Volumes[1].Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyClone}
		}
	})
	w.r.Read.Ask = func(p *corev1.Pod) (launcherapi.Returns, error) {
		if p.Labels[render.LabelDomain] != "a" {
			return launcherapi.Returns{}, nil
		}
		c := launcherapi.Copy{Mode: kubevirt.CopyOnRead, Stored: 5<<20 - 1, Done: 45, Total: 100}
		if *all {
			letGo := launcherapi.Copy{Mode: kubevirt.CopyOnRead, Stored: 11 << 20, Done: 100, Total: 100, LetGo: true}
			return launcherapi.Returns{Copies: map[string]launcherapi.Copy{"one": letGo, "two": letGo}}, nil
		}
		return launcherapi.Returns{Copies: map[string]launcherapi.Copy{"one": c, "two": c}}, nil
	}
	return w
}

// TestMastersLetGo: a master is released when the launcher reports that the copy has all of it, and not before, whatever write is
// refused or is the controller's last; the machine continues to run.
func TestMastersLetGo(t *testing.T) {
	scene := func(t *testing.T, at int, kind faults.Kind) (writes int) {
		all := false
		w := copier(t, &all)
		w.faults.At, w.faults.Kind = at, kind
		w.both([]string{"a"}, false)
		w.both([]string{"a", "b"}, false)
		if got := w.going(); len(got) != 1 || got[0] != "a" {
			t.Fatalf("while it copies %v run", got)
		}
		if i := w.named("b"); i.Status.Reason != string(state.DiskInUse) {
			t.Errorf("the writer says %s", i.Status.Reason)
		}
		all = true
		w.both([]string{"a", "b"}, true)
		if got := w.going(); len(got) != 2 {
			t.Fatalf("with all in the copies %v run", got)
		}
		for disk, holders := range w.records() {
			if len(holders) != 1 || holders[0].Machine != "b" {
				t.Errorf("%s: holders %v", disk, holders)
			}
		}
		writes = w.faults.Writes
		// A new controller does not know the launcher's report: it does not take the masters again, nor stop a guest.
		w.r.Read.Ask = func(*corev1.Pod) (launcherapi.Returns, error) { return launcherapi.Returns{}, probe.ErrNoAnswerYet }
		w.both([]string{"a", "b"}, true)
		if got := w.going(); len(got) != 2 {
			t.Fatalf("a controller that is new: %v run", got)
		}
		for _, name := range []string{"a", "b"} {
			w.must(w.api.Delete(context.Background(), w.named(name)))
		}
		w.both([]string{"a", "b"}, true)
		if left := w.records(); len(left) > 0 {
			t.Errorf("records are left: %v", left)
		}
		return writes
	}
	last := scene(t, -1, faults.Kinds[0])
	for at := range last {
		for _, kind := range faults.Kinds {
			t.Run(fmt.Sprintf("%d %s", at, kind), func(t *testing.T) { scene(t, at, kind) })
		}
	}
}

// TestCopyStatus: an instance says mode, medium, what a copy takes and how far it is, and a guest that waits for a clone says so.
func TestCopyStatus(t *testing.T) {
	all := false
	w := copier(t, &all)
	w.both([]string{"a"}, false)
	read := func() (map[string]kubevirt.CopyStatus, kubevirt.Condition) {
		out := map[string]kubevirt.CopyStatus{}
		i := w.named("a")
		for _, v := range i.Status.VolumeStatus {
			if v.Copy != nil {
				out[v.Name] = *v.Copy
			}
		}
		at := slices.IndexFunc(i.Status.Conditions, func(c kubevirt.Condition) bool { return c.Type == "CopiesIndependent" })
		if at < 0 {
			t.Fatalf("no condition: %+v", i.Status.Conditions)
		}
		return out, i.Status.Conditions[at]
	}
	got, c := read()
	if one := got["one"]; one.Mode != kubevirt.CopyOnRead || one.Medium != "node" || one.Stored.String() != "5Mi" || one.Progress != "45%" || one.Reason != "Filling" {
		t.Errorf("of copy one: %+v", one)
	}
	if two := got["two"]; two.Reason != "Cloning" {
		t.Errorf("of copy two: %+v", two)
	}
	if c.Status != corev1.ConditionFalse || c.Reason != "Cloning" || !strings.Contains(c.Message, "volume one: copy-on-read on node, 5Mi stored, 45% of its master") {
		t.Errorf("condition: %+v", c)
	}
	all = true
	w.both([]string{"a"}, true)
	got, c = read()
	if one := got["one"]; one.Progress != "100%" || one.Reason != "Independent" || one.Stored.String() != "11Mi" {
		t.Errorf("of copy one: %+v", one)
	}
	if c.Status != corev1.ConditionTrue || c.Reason != "Independent" {
		t.Errorf("condition: %+v", c)
	}
}

// TestCloningIsSaid: the machine says how far the clone is that its guest waits for.
func TestCloningIsSaid(t *testing.T) {
	s := &observed.Instance{Run: diskstate.Run{Object: &kubevirt.VirtualMachineInstance{}, Launcher: &corev1.Pod{}}}
	s.Object.Name = "a"
	s.Object.Spec.Volumes = []kubevirt.Volume{{Name: "root", Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyClone}}}
	s.Launcher.Annotations = map[string]string{render.AnnGo: "yes"}
	s.Launcher.Spec.NodeName = "node1"
	s.Returns.Copies = map[string]launcherapi.Copy{"root": {Mode: kubevirt.CopyClone, Stored: 1 << 20, Done: 1234, Total: 10000}}
	if row := report.Row(s, state.LauncherStarting); row.Reason != state.Cloning || !strings.Contains(row.Message, "volume root: clone on node, 1Mi stored, 12% of its master") {
		t.Errorf("it says %s: %s", row.Reason, row.Message)
	}
	s.Returns.Copies["root"] = launcherapi.Copy{Mode: kubevirt.CopyClone, LetGo: true}
	if row := report.Row(s, state.LauncherStarting); row.Reason != state.LauncherStarting {
		t.Errorf("when it is done it says %s: %s", row.Reason, row.Message)
	}
}

// TestUsageTypeWithoutASize: the copy of a disk whose size is known only when the machine starts is in a claim of its usage type all the same, with room for a
// documented amount, which the launcher keeps to.
func TestUsageTypeWithoutASize(t *testing.T) {
	ssd := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "ssd", Annotations: map[string]string{claim.UsageTypePrefix + "fast": "true"}}, Provisioner: "p"}
	storage := claim.Cluster{Classes: []storagev1.StorageClass{ssd}}
	for _, mode := range []kubevirt.CopyMode{kubevirt.CopyOnWrite, kubevirt.CopyOnRead, kubevirt.CopyClone} {
		s := &observed.Instance{Run: diskstate.Run{Object: &kubevirt.VirtualMachineInstance{}}}
		got, err := s.Medium("disk", &kubevirt.DiskCopy{Mode: mode, UsageType: "fast"}, storage)
		if err != nil || got.Class != "ssd" || got.Room != launcherapi.ClaimRoom || !got.Assumed || got.Size < launcherapi.CopyFile(launcherapi.ClaimRoom) {
			t.Errorf("%s: %+v, %v", mode, got, err)
		}
		got, err = s.Medium("disk", &kubevirt.DiskCopy{Mode: mode, UsageType: "fast", Capacity: new(resource.MustParse("1Gi"))}, storage)
		if err != nil || got.Room != 1<<30 || got.Assumed {
			t.Errorf("%s with a capacity: %+v, %v", mode, got, err)
		}
	}
}
