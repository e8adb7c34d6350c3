package evacuation

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/attempts"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/virtconfig"
	"github.com/berth-vm/berth/internal/decide/evacuation"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// Leaving is the plan for a guest whose node is being drained, and the state to report.
type Leaving struct {
	Node  string // that it is to leave; empty: none
	row   state.EvacuationRow
	text  string
	Again time.Duration // when to look again; 0: when something changes
}

// Evacuate guards the guest against being evicted, and moves a guest whose eviction was requested.
func (r *Reconciler) Evacuate(ctx context.Context, s *observed.Instance) (Leaving, error) {
	settings, err := virtconfig.Read(ctx, r.Read.Cached, r.Read.Options.Namespace)
	if err != nil {
		return Leaving{}, err
	}
	all, err := r.Read.MigrationsOf(ctx, s.Object.Namespace, s.Object.Name)
	if err != nil {
		return Leaving{}, err
	}
	budget, err := cluster.Owned[policyv1.PodDisruptionBudget](ctx, r.Read.Cached, s.Object.UID, s.Object.Namespace, render.Budget(s.Object).Name)
	if err != nil {
		return Leaving{}, err
	}
	if id := render.EvacuationID(s.Launcher); id != "" && id == s.Object.Annotations[kubevirt.AnnStays] {
		if s.Launcher, err = r.Tries.KeepHere(ctx, s.Launcher); err != nil {
			return Leaving{}, err
		}
	}
	tries := r.Tries.Of(&s.Run, all, attempts.Evacuations)
	facts := evacuation.Facts{Strategy: virtconfig.Strategy(settings.Eviction(s.Object)), Guest: s.Leaver(), Moves: tries.Moves,
		Asked: s.Launcher != nil && s.Launcher.Annotations[render.AnnEvacuate] != "", Guarded: budget != nil}
	plan := evacuation.Decide(facts)
	if len(plan.Do) > 0 {
		log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	}
	for _, a := range plan.Do {
		if err := r.act(ctx, a, s, budget, tries); err != nil {
			return Leaving{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	if plan.State == "" {
		return Leaving{}, nil
	}
	row := state.OfEvacuation(plan.State)
	detail := tries.Text
	if plan.State == state.EvacuationFixed {
		_, detail = s.Fixed()
	}
	l := Leaving{Node: s.Launcher.Spec.NodeName, row: row, text: row.Text(named(s.Object), detail), Again: tries.Due}
	r.tellLeaving(s, l)
	return l, nil
}

func named(i *kubevirt.VirtualMachineInstance) string { return i.Namespace + "/" + i.Name }

func (r *Reconciler) act(ctx context.Context, a evacuation.Action, s *observed.Instance, budget *policyv1.PodDisruptionBudget, t attempts.Tries) error {
	switch a {
	case evacuation.Guard:
		return r.Cluster.Create(ctx, render.Budget(s.Object))
	case evacuation.Unguard:
		return r.Cluster.Delete(ctx, budget)
	case evacuation.Migrate:
		return r.Tries.Make(ctx, &s.Run, t, metav1.ObjectMeta{Annotations: map[string]string{kubevirt.AnnEvacuation: s.Launcher.Spec.NodeName}})
	}
	return fmt.Errorf("%s is not an action on a guest that is to leave", a)
}

// LeavingType is the condition of a guest that is to leave its node, as upstream names it.
const LeavingType = "EvictionRequested"

// Condition is the condition of an instance whose node is drained; none otherwise.
func (l Leaving) Condition() []kubevirt.Condition {
	if l.Node == "" {
		return nil
	}
	return []kubevirt.Condition{{Type: LeavingType, Status: corev1.ConditionTrue, Reason: string(l.row.Reason), Message: l.text}}
}

// tellLeaving sends one event about a guest that is to leave its node.
func (r *Reconciler) tellLeaving(s *observed.Instance, l Leaving) {
	known := func(c kubevirt.Condition) bool {
		return c.Type == LeavingType && c.Reason == string(l.row.Reason)
	}
	if slices.ContainsFunc(s.Object.Status.Conditions, known) {
		return
	}
	kind := corev1.EventTypeNormal
	if l.row.Warn {
		kind = corev1.EventTypeWarning
	}
	r.Cluster.Event(s.Object, kind, string(l.row.Reason), l.text)
}
