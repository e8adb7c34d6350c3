package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// moveOwner owns the annotation that launchers are told about moves with.
const moveOwner client.FieldOwner = "berth-move"

// observeLaunchers finds the launcher that has the guest, or is to start it, and the others.
func (r *Reconciler) observeLaunchers(ctx context.Context, s *run) error {
	all, err := launcherpod.Of(ctx, cluster.Reads(r.reader), s.instance)
	if err != nil {
		return err
	}
	s.launcher = launcherpod.Present(all)
	s.others = slices.DeleteFunc(all, func(p *corev1.Pod) bool { return p == s.launcher })
	return nil
}

// arrives: the launcher is one that the guest came to. No other target is ever the instance's launcher.
func (s *run) arrives() bool { return launcherpod.Incoming(s.launcher) != "" }

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

// tellMove tells a launcher about a move. One that is being deleted is not told: a kubelet brings such a pod no news, and it ends by itself.
func (r *Reconciler) tellMove(ctx context.Context, p *corev1.Pod, m launcherapi.Move) error {
	if equality.Semantic.DeepEqual(launcherpod.Orders(p), m) || p.DeletionTimestamp != nil {
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
	if owner == nil || owner.Kind != "VirtualMachineInstance" || launcherpod.LastWords(p).End != launcherapi.Moved && !launcherpod.Came(p) {
		return nil
	}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.reader, p.Namespace, owner.Name)
	if err != nil || i == nil || i.UID != owner.UID {
		return err
	}
	all, err := launcherpod.Targets(ctx, cluster.Reads(r.reader), i)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(q *corev1.Pod) bool { return q.UID == p.UID }) && launcherpod.Came(p) && launcherpod.LastWords(p).End != launcherapi.Moved {
		if err := r.recordReplaced(ctx, p, i); err != nil {
			return err
		}
	}
	if next := launcherpod.Successor(p, all); next != nil {
		return r.handOver(ctx, next, i, launcherpod.Orders(p))
	}
	return nil
}

// handOver writes that a guest has come to a launcher: whose data its volumes have now, and then that it may run it, and the limits that it was
// sent with, which its source was told: the source goes.
func (r *Reconciler) handOver(ctx context.Context, next *corev1.Pod, i *kubevirt.VirtualMachineInstance, sent launcherapi.Move) error {
	if err := r.recordReplaced(ctx, next, i); err != nil || launcherpod.Orders(next).Run {
		return err
	}
	m := launcherapi.Move{ID: string(launcherpod.Incoming(next)), Run: true}
	if sent.ID == m.ID {
		m.Limits, m.Policy = sent.Limits, sent.Policy
	}
	return r.tellMove(ctx, next, m)
}
