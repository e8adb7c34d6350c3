package machine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/instance"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// sharers is a world of two instances that name the same two claims, in opposite orders.
func sharers(t *testing.T, change func(name string, i *kubevirt.VirtualMachineInstance)) *world {
	t.Helper()
	w := newWorld(t, scenario{strategy: kubevirt.RunHalted})
	for _, c := range []string{"one", "two"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: c, UID: types.UID(c)}}
		claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
		w.must(w.api.Create(context.Background(), claim))
		w.bind(claim)
	}
	for name, claims := range map[string][]string{"a": {"one", "two"}, "b": {"two", "one"}} {
		i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("run-" + name)}}
		for _, c := range claims {
			i.Spec.Volumes = append(i.Spec.Volumes, kubevirt.Volume{Name: c,
				VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: c}}})
			i.Spec.Domain.Devices.Disks = append(i.Spec.Domain.Devices.Disks, kubevirt.Disk{Name: c})
		}
		if change != nil {
			change(name, i)
		}
		w.must(w.api.Create(context.Background(), i))
	}
	return w
}

// both lets controller and cluster take turns for both instances until nothing moves, and watches after every step that no
// two guests were told to go that may not.
func (w *world) both(order []string, together bool) {
	w.t.Helper()
	for range 60 {
		before, failed := w.faults.Writes, false
		for _, name := range order {
			_, err := w.r.Instance.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: ns, Name: name}})
			if err != nil && !faults.Caused(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
				w.t.Fatalf("reconcile %s: %v", name, err)
			}
			failed = failed || err != nil
			if n := w.going(); len(n) > 1 && !together {
				w.t.Fatalf("two guests on one disk: %v", n)
			}
		}
		_, err := w.keep(context.Background(), ctrl.Request{})
		failed = failed || err != nil
		if !w.turn() && !failed && w.faults.Writes == before {
			return
		}
	}
	w.t.Fatal("the loop never came to rest")
}

// going are the launchers that were told to go and have not ended.
func (w *world) going() []string {
	var pods corev1.PodList
	w.must(w.api.List(context.Background(), &pods))
	var out []string
	for _, p := range pods.Items {
		if p.Annotations[render.AnnGo] == "yes" && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			out = append(out, p.Labels[render.LabelDomain])
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) named(name string) *kubevirt.VirtualMachineInstance {
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](context.Background(), w.api, ns, name)
	w.must(err)
	return i
}

// TestTwoMachinesOneDisk: of two machines that want the same disks one runs and the other waits and names the first, whatever
// write is refused or is the controller's last; when the first has ended the other runs.
func TestTwoMachinesOneDisk(t *testing.T) {
	calm := sharers(t, nil)
	calm.both([]string{"a", "b"}, false)
	for at := 0; at <= calm.faults.Writes; at++ {
		for _, kind := range faults.Kinds {
			for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
				w := sharers(t, nil)
				w.faults.At, w.faults.Kind = at, kind
				w.both(order, false)
				runs := w.going()
				if len(runs) != 1 {
					t.Fatalf("write %d %s: %v run", at, kind, runs)
				}
				first := runs[0]
				other := map[string]string{"a": "b", "b": "a"}[first]
				if i := w.named(other); i.Status.Reason != string(state.DiskInUse) || !strings.Contains(i.Status.Conditions[0].Message, "machine "+first+" has it write-exclusive") {
					t.Errorf("write %d %s: it says %s: %s", at, kind, i.Status.Reason, i.Status.Conditions[0].Message)
				}
				w.must(w.api.Delete(context.Background(), w.named(first)))
				w.both(order, false)
				if got := w.going(); len(got) != 1 || got[0] != other {
					t.Errorf("write %d %s: after %s has ended %v run", at, kind, first, got)
				}
				w.must(w.api.Delete(context.Background(), w.named(other)))
				w.both(order, false)
				if left := w.records(); len(left) > 0 {
					t.Errorf("write %d %s: records are left: %v", at, kind, left)
				}
			}
		}
	}
}

// TestModesOfAClaim: what a machine says of a disk is the mode it has it in, and those that go together run together.
func TestModesOfAClaim(t *testing.T) {
	kinds := map[string]func(*kubevirt.VirtualMachineInstance){
		"write-exclusive": func(*kubevirt.VirtualMachineInstance) {},
		"write-shared": func(i *kubevirt.VirtualMachineInstance) {
			for n := range i.Spec.Domain.Devices.Disks {
				i.Spec.Domain.Devices.Disks[n].Shareable = new(true)
			}
		},
		"read-shared": func(i *kubevirt.VirtualMachineInstance) {
			i.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
			i.Spec.Domain.Devices.Disks[1].CDRom = &kubevirt.CDRomTarget{}
		},
		"copied": func(i *kubevirt.VirtualMachineInstance) {
			for n := range i.Spec.Volumes {
				i.Spec.Volumes[n].Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite}
			}
		},
	}
	modes := map[string]string{"copied": "read-shared"} // of the master
	for one, asOne := range kinds {
		for two, asTwo := range kinds {
			t.Run(one+" and "+two, func(t *testing.T) {
				together := cmp.Or(modes[one], one) == cmp.Or(modes[two], two) && one != "write-exclusive"
				w := sharers(t, func(name string, i *kubevirt.VirtualMachineInstance) {
					if name == "a" {
						asOne(i)
					} else {
						asTwo(i)
					}
				})
				w.both([]string{"a", "b"}, together)
				want := 1
				if together {
					want = 2
				}
				if got := w.going(); len(got) != want {
					t.Errorf("%v run", got)
				}
				for disk, holders := range w.records() {
					if len(holders) != want {
						t.Errorf("%s: holders %v", disk, holders)
					}
				}
			})
		}
	}
}

func (w *world) records() map[string][]accessv1.Holder {
	var list accessv1.DiskAccessList
	w.must(w.api.List(context.Background(), &list))
	out := map[string][]accessv1.Holder{}
	for _, r := range list.Items {
		out[r.Spec.Disk] = r.Spec.Holders
	}
	return out
}

// TestOneNetworkDisk: a LUN by two names of its server is one disk, and the records stay as long as the machine runs.
func TestOneNetworkDisk(t *testing.T) {
	w := sharers(t, func(name string, i *kubevirt.VirtualMachineInstance) {
		i.Spec.Volumes = []kubevirt.Volume{{Name: "lun", VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{
			Host: kubevirt.NetworkHost{Name: "server-" + name}, Portal: "iqn.2026-01.example:disk", LUN: 1}}}}}
		i.Spec.Domain.Devices.Disks = nil
	})
	w.both([]string{"a", "b"}, false)
	if got := w.going(); len(got) != 1 {
		t.Errorf("%v run", got)
	}
	if got := w.records()["iscsi:iqn.2026-01.example:disk/1"]; len(got) != 1 {
		t.Errorf("records: %v", w.records())
	}
}

// TestAnotherNamespace: who has a disk in another namespace is not told.
func TestAnotherNamespace(t *testing.T) {
	w := sharers(t, nil)
	w.must(w.api.Delete(context.Background(), w.named("b")))
	pv, err := cluster.Get[corev1.PersistentVolume](context.Background(), w.api, "", "pv-one")
	w.must(err)
	d := diskstate.Disk{Name: "one", Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, PV: pv}
	text, err := w.r.Read.TakenBy(context.Background(), &diskstate.Run{Object: w.named("a")}, &d,
		accessv1.Holder{Namespace: "secret-ns", Machine: "secret-vm", Pod: "secret-pod", Node: "secret-node", Mode: accessv1.WriteExclusive})
	if err != nil || strings.Contains(text, "secret") || !strings.Contains(text, "a machine of another namespace has it write-exclusive") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestForcedAway: a launcher that is removed by force, even with its finalizer, keeps its disks until the node cannot run it.
func TestForcedAway(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		node func(*world)
		free bool
	}{
		"the node is well":           {func(*world) {}, false},
		"the node was started again": {func(w *world) { w.boot("second") }, true},
		"the node is out of service": {func(w *world) {
			w.changeNode(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}} })
		}, true},
		"the node was deleted": {func(w *world) {
			w.must(w.api.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := sharers(t, nil)
			w.boot("first")
			w.both([]string{"a", "b"}, false)
			if got := w.going(); !slices.Equal(got, []string{"a"}) {
				t.Fatalf("%v run", got)
			}
			pod := w.named("a")
			p, err := cluster.Get[corev1.Pod](ctx, w.api, ns, render.Machine{Instance: pod}.PodName(render.Launcher))
			w.must(err)
			p.Finalizers = nil
			w.must(w.api.Update(ctx, p))
			w.must(w.api.Delete(ctx, p, client.GracePeriodSeconds(0)))
			i := w.named("a")
			i.Finalizers = nil
			w.must(w.api.Update(ctx, i))
			w.must(w.api.Delete(ctx, i))
			c.node(w)
			var list accessv1.DiskAccessList
			w.must(w.api.List(ctx, &list))
			for range 2 {
				for _, r := range list.Items {
					_, err := w.r.Read.Records.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: r.Name}})
					w.must(err)
				}
			}
			if left := w.records(); (len(left) == 0) != c.free {
				t.Errorf("records: %v", left)
			}
			if !c.free {
				w.both([]string{"b"}, false)
				if got := w.going(); len(got) > 0 {
					t.Errorf("%v run beside a launcher that may still run", got)
				}
				if text := w.named("b").Status.Conditions[0].Message; !strings.Contains(text, "it may still run") {
					t.Errorf("it says: %s", text)
				}
			}
		})
	}
}

func (w *world) changeNode(change func(*corev1.Node)) {
	n, err := cluster.Get[corev1.Node](context.Background(), w.api, "", "node1")
	w.must(err)
	change(n)
	status := n.Status
	w.must(w.api.Update(context.Background(), n))
	n.Status = status
	w.must(w.api.Status().Update(context.Background(), n))
}

func (w *world) boot(id string) { w.changeNode(func(n *corev1.Node) { n.Status.NodeInfo.BootID = id }) }

// TestAFinalizerThatIsMissing: a launcher without the finalizer gets it before it is told to start, and an instance with another
// program's finalizer gets ours as well.
func TestAFinalizerThatIsMissing(t *testing.T) {
	w := sharers(t, func(_ string, i *kubevirt.VirtualMachineInstance) { i.Finalizers = []string{"example.com/theirs"} })
	w.both([]string{"a"}, false)
	if i := w.named("a"); !slices.Contains(i.Finalizers, instance.Finalizer) { // that theirs stays is the real server's doing: finalizers are a set there
		t.Errorf("finalizers of the instance: %v", i.Finalizers)
	}
	p, err := cluster.Get[corev1.Pod](context.Background(), w.api, ns, render.Machine{Instance: w.named("a")}.PodName(render.Launcher))
	w.must(err)
	p.Finalizers = nil
	w.must(w.api.Update(context.Background(), p))
	w.both([]string{"a"}, false)
	p, err = cluster.Get[corev1.Pod](context.Background(), w.api, ns, p.Name)
	w.must(err)
	if !slices.Contains(p.Finalizers, render.LauncherEnd) {
		t.Errorf("finalizers of the launcher: %v", p.Finalizers)
	}
}
