package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/render"
)

// An instance has one launcher, and a second while its guest moves. The second is the instance's launcher from the moment on that
// the first has said that its guest is there (its last words), which is written on the second before the first may go.

// moveOwner owns the annotation that launchers are told about moves with.
const moveOwner client.FieldOwner = "berth-move"

// observeLaunchers finds the launcher that has the guest, or is to start it, and the others.
func (r *Reconciler) observeLaunchers(ctx context.Context, s *run) error {
	first, err := r.pod(ctx, s, render.Launcher)
	if err != nil {
		return err
	}
	all, err := r.targets(ctx, s.instance)
	if err != nil {
		return err
	}
	if first != nil {
		all = append(all, first)
	}
	s.launcher = present(all)
	s.others = slices.DeleteFunc(all, func(p *corev1.Pod) bool { return p == s.launcher })
	return nil
}

// targets are the launchers of an instance that its guest came to, or is to come to. Anybody can write labels and names: a target
// belongs to the instance and has the name that the migration in its orders gives it.
func (r *Reconciler) targets(ctx context.Context, i *kubevirt.VirtualMachineInstance) ([]*corev1.Pod, error) {
	var list corev1.PodList
	err := r.reader.List(ctx, &list, client.InNamespace(i.Namespace), client.MatchingLabels{
		render.LabelMachine: "virt-launcher", render.LabelCreatedBy: string(i.UID)})
	if err != nil {
		return nil, fmt.Errorf("list the launchers of %s: %w", i.Name, err)
	}
	var out []*corev1.Pod
	for n := range list.Items {
		p := &list.Items[n]
		m := machineOf(p)
		if m.Incoming != "" && cluster.OwnedBy(p, i.UID) && p.Name == targetName(i, types.UID(m.Incoming)) {
			out = append(out, p)
		}
	}
	return out, nil
}

func targetName(i *kubevirt.VirtualMachineInstance, migration types.UID) string {
	return render.Machine{Instance: i, Incoming: migration}.PodName(render.Launcher)
}

// present is which of an instance's launchers has the guest or is to start it; nil: there is none.
func present(all []*corev1.Pod) *corev1.Pod {
	var at *corev1.Pod
	for _, p := range all {
		if machineOf(p).Incoming != "" && !came(p) {
			continue
		}
		if at == nil || later(p, at) {
			at = p
		}
	}
	for range all { // a guest moves from one to the next
		next := successor(at, all)
		if next == nil {
			break
		}
		at = next
	}
	return at
}

// later: a guest moves to a launcher that is made for it, so the youngest has it.
func later(a, b *corev1.Pod) bool {
	if (machineOf(a).Incoming == "") != (machineOf(b).Incoming == "") {
		return machineOf(a).Incoming != ""
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) > 0
}

// successor is the launcher that the guest of one that has ended moved to; nil: it did not, or it is not there.
func successor(p *corev1.Pod, all []*corev1.Pod) *corev1.Pod {
	if p == nil || ended(p) == "" {
		return nil
	}
	words := lastWords(p)
	at := slices.IndexFunc(all, func(q *corev1.Pod) bool { return q != p && q.Name == words.To && machineOf(q).Incoming != "" })
	if words.End != launch.Moved || at < 0 {
		return nil
	}
	return all[at]
}

// arrives: the launcher is one that the guest came to. No other target is ever the instance's launcher.
func (s *run) arrives() bool { return s.launcher != nil && machineOf(s.launcher).Incoming != "" }

// otherLaunchers is how far those are that do not have the guest.
func (s *run) otherLaunchers() machine.Pod {
	switch {
	case len(s.others) == 0:
		return machine.NoPod
	case slices.ContainsFunc(s.others, func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil }):
		return machine.Placed
	}
	return machine.Going
}

// stopOthers deletes them.
func (r *Reconciler) stopOthers(ctx context.Context, s *run) error {
	for _, p := range s.others {
		if p.DeletionTimestamp == nil {
			if err := r.cluster.Delete(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// orders is what a launcher was told about moves.
func orders(p *corev1.Pod) launch.Move {
	var m launch.Move
	if p != nil {
		_ = json.Unmarshal([]byte(p.Annotations[render.AnnMove]), &m) // what cannot be read is told again
	}
	return m
}

// tellMove tells a launcher about a move. One that is being deleted is not told: a kubelet brings such a pod no news, and it ends by itself.
func (r *Reconciler) tellMove(ctx context.Context, p *corev1.Pod, m launch.Move) error {
	if same(orders(p), m) || p.DeletionTimestamp != nil {
		return nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write the orders: %w", err)
	}
	return r.cluster.MarkAs(ctx, moveOwner, p, cluster.Marks{Annotations: map[string]string{render.AnnMove: string(text)}})
}

// inWriting notes on the launcher that a guest went to that it has come, before the one that it came from is let go: that is the
// only other place where it is said.
func (r *Reconciler) inWriting(ctx context.Context, p *corev1.Pod) error {
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != "VirtualMachineInstance" || lastWords(p).End != launch.Moved && !came(p) {
		return nil
	}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.reader, p.Namespace, owner.Name)
	if err != nil || i == nil || i.UID != owner.UID {
		return err
	}
	all, err := r.targets(ctx, i)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(q *corev1.Pod) bool { return q.UID == p.UID }) && came(p) && lastWords(p).End != launch.Moved {
		if err := r.recordReplaced(ctx, p, i); err != nil {
			return err
		}
	}
	if next := successor(p, all); next != nil {
		return r.handOver(ctx, next, i)
	}
	return nil
}

// handOver writes that a guest has come to a launcher: whose data its volumes have now, and then that it may run it.
func (r *Reconciler) handOver(ctx context.Context, next *corev1.Pod, i *kubevirt.VirtualMachineInstance) error {
	if err := r.recordReplaced(ctx, next, i); err != nil || orders(next).Run {
		return err
	}
	return r.tellMove(ctx, next, launch.Move{ID: machineOf(next).Incoming, Run: true})
}
