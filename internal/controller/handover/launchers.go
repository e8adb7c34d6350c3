package handover

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
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// moveOwner owns the annotation that launchers are told about moves with.
const moveOwner client.FieldOwner = "berth-move"

// TellMove tells a launcher about a move. One that is being deleted is not told: a kubelet no longer updates the annotations of
// such a pod, and it ends by itself.
func (r *Recorder) TellMove(ctx context.Context, p *corev1.Pod, m launcherapi.Move) error {
	if equality.Semantic.DeepEqual(launcherpod.Orders(p), m) || p.DeletionTimestamp != nil {
		return nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write the orders: %w", err)
	}
	return r.Cluster.MarkAs(ctx, moveOwner, p, cluster.Marks{Annotations: map[string]string{render.AnnMove: string(text)}})
}

// Departed records on the target launcher that the guest has arrived, before the source launcher is released, which has the only
// other record of it.
func (r *Recorder) Departed(ctx context.Context, p *corev1.Pod) error {
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != "VirtualMachineInstance" || launcherpod.LastWords(p).End != launcherapi.Moved && !launcherpod.Came(p) {
		return nil
	}
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.Cached, p.Namespace, owner.Name)
	if err != nil || i == nil || i.UID != owner.UID {
		return err
	}
	all, err := launcherpod.Targets(ctx, cluster.Reads(r.Cached), i)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(q *corev1.Pod) bool { return q.UID == p.UID }) && launcherpod.Came(p) && launcherpod.LastWords(p).End != launcherapi.Moved {
		if err := r.recordReplaced(ctx, p, i); err != nil {
			return err
		}
	}
	if next := launcherpod.Successor(p, all); next != nil {
		return r.HandOver(ctx, next, i, launcherpod.Orders(p))
	}
	return nil
}

// HandOver writes that a guest has come to a launcher: whose data its volumes have now, and then that it may run it, and the limits that it was
// sent with, which its source was told: the source goes.
func (r *Recorder) HandOver(ctx context.Context, next *corev1.Pod, i *kubevirt.VirtualMachineInstance, sent launcherapi.Move) error {
	if err := r.recordReplaced(ctx, next, i); err != nil || launcherpod.Orders(next).Run {
		return err
	}
	m := launcherapi.Move{ID: string(launcherpod.Incoming(next)), Run: true}
	if sent.ID == m.ID {
		m.Limits, m.Policy = sent.Limits, sent.Policy
	}
	return r.TellMove(ctx, next, m)
}
