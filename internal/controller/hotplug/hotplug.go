package hotplug

import (
	"context"
	"encoding/json"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/grant"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/render"
)

// Hotplug brings the volumes of a running machine a step further.
func (r *Reconciler) Hotplug(ctx context.Context, s *observed.Instance) error {
	if next, old := s.DiskOrders(), s.LastOrders(); !equality.Semantic.DeepEqual(next, old) {
		if err := r.Grants.Take(ctx, grant.Pod{Pod: s.Launcher, Instance: s.Object}, s.Granted()); err != nil {
			return err
		}
		next.Serial++
		text, err := json.Marshal(next)
		if err != nil {
			return fmt.Errorf("write the orders: %w", err)
		}
		marks := map[string]string{render.AnnGo: "yes", render.AnnDisks: string(text)}
		if err := r.Cluster.Mark(ctx, s.Launcher, cluster.Marks{Annotations: marks}); err != nil {
			return err
		}
	}
	for _, h := range s.Added {
		h.Plan = machine.Hotplug(machine.HotFacts{Wanted: h.Wanted, Disk: h.State, Access: h.Access, Consumer: observed.Situation(h.Consumer),
			Holder: observed.Situation(h.Holder), Kept: s.Returns.Kept[h.Name] != "", BackedUp: s.Returns.BackedUp})
		for _, a := range h.Plan.Do {
			if err := r.act(ctx, a, h); err != nil {
				return fmt.Errorf("%s for volume %s: %w", a, h.Name, err)
			}
		}
	}
	return nil
}

// guard makes the one that keeps the holders of a launcher from being evicted, if there is none.
func (r *Reconciler) guard(ctx context.Context, h *observed.Added) error {
	b := h.Pods.Budget()
	old, err := cluster.Get[policyv1.PodDisruptionBudget](ctx, r.Read.Live, b.Namespace, b.Name)
	if err != nil || old != nil {
		return err
	}
	return r.Cluster.Create(ctx, b)
}

func (r *Reconciler) act(ctx context.Context, a machine.Action, h *observed.Added) error {
	switch a {
	case machine.StartHotConsumer:
		return r.Cluster.Create(ctx, h.Pods.Pod(render.Consumer))
	case machine.StopHotConsumer:
		return r.Cluster.Delete(ctx, h.Consumer)
	case machine.StartHolder:
		if err := r.guard(ctx, h); err != nil {
			return err
		}
		if err := r.Grants.CopyLogins(ctx, []diskstate.Disk{h.Disk}); err != nil {
			return err
		}
		return r.Cluster.Create(ctx, h.Pods.Pod(render.Launcher))
	case machine.StopHolder:
		return r.Cluster.Delete(ctx, h.Holder)
	case machine.StartConsumer, machine.StopConsumer, machine.StartLauncher, machine.StopLauncher, machine.Nominate,
		machine.Release, machine.Forget, machine.NoteServers, machine.TakeDisks, machine.GiveDisks, machine.GiveMaster, machine.RecordBegun, machine.RecordKept, machine.CreateDisks, machine.CreateInstance, machine.DeleteInstance, machine.AskStart, machine.TakeRequest,
		machine.StopOthers, machine.SetAlways:
	}
	return fmt.Errorf("%s is not an action on a volume", a)
}
