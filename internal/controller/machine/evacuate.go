package machine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/virtconfig"
	"github.com/berth-vm/berth/internal/decide/evacuation"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// leaving is what becomes of a guest whose node is to be emptied, and what is said of it.
type leaving struct {
	node  string // that it is to leave; empty: none
	row   state.EvacuationRow
	text  string
	again time.Duration // when to look again; 0: when something changes
}

// evacuate guards the guest against being evicted, and moves one that somebody wanted to evict.
func (r *Reconciler) evacuate(ctx context.Context, s *run) (leaving, error) {
	settings, err := virtconfig.Read(ctx, r.reader, r.options.Namespace)
	if err != nil {
		return leaving{}, err
	}
	all, err := r.migrationsOf(ctx, s.instance.Namespace, s.instance.Name)
	if err != nil {
		return leaving{}, err
	}
	budget, err := cluster.Owned[policyv1.PodDisruptionBudget](ctx, r.reader, s.instance.UID, s.instance.Namespace, render.Budget(s.instance).Name)
	if err != nil {
		return leaving{}, err
	}
	if id := render.EvacuationID(s.launcher); id != "" && id == s.instance.Annotations[kubevirt.AnnStays] {
		if s.launcher, err = r.keepHere(ctx, s.launcher); err != nil {
			return leaving{}, err
		}
	}
	tries := r.tries(&s.base, all, evacuations)
	facts := evacuation.Facts{Strategy: virtconfig.Strategy(settings.Eviction(s.instance)), Guest: s.leaver(), Moves: tries.moves,
		Asked: s.launcher != nil && s.launcher.Annotations[render.AnnEvacuate] != "", Guarded: budget != nil}
	plan := evacuation.Decide(facts)
	if len(plan.Do) > 0 {
		log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	}
	for _, a := range plan.Do {
		if err := r.actEvacuation(ctx, a, s, budget, tries); err != nil {
			return leaving{}, fmt.Errorf("%s: %w", a, err)
		}
	}
	if plan.State == "" {
		return leaving{}, nil
	}
	row := state.OfEvacuation(plan.State)
	detail := tries.text
	if plan.State == state.EvacuationFixed {
		_, detail = s.fixed()
	}
	l := leaving{node: s.launcher.Spec.NodeName, row: row, text: row.Text(named(s.instance), detail), again: tries.due}
	r.tellLeaving(s, l)
	return l, nil
}

func named(i *kubevirt.VirtualMachineInstance) string { return i.Namespace + "/" + i.Name }

func (r *Reconciler) actEvacuation(ctx context.Context, a evacuation.Action, s *run, budget *policyv1.PodDisruptionBudget, t tries) error {
	switch a {
	case evacuation.Guard:
		return r.cluster.Create(ctx, render.Budget(s.instance))
	case evacuation.Unguard:
		return r.cluster.Delete(ctx, budget)
	case evacuation.Migrate:
		return r.makeMigration(ctx, &s.base, t, metav1.ObjectMeta{Annotations: map[string]string{kubevirt.AnnEvacuation: s.launcher.Spec.NodeName}})
	}
	return fmt.Errorf("%s is not an action on a guest that is to leave", a)
}

// makeMigration makes the next try, with the labels and annotations of what it is for.
func (r *Reconciler) makeMigration(ctx context.Context, s *base, t tries, with metav1.ObjectMeta) error {
	for _, old := range t.surplus {
		if err := r.cluster.Delete(ctx, old); err != nil {
			return err
		}
	}
	with.Namespace, with.Name = s.instance.Namespace, t.next
	metav1.SetMetaDataLabel(&with, kubevirt.LabelMigrated, s.instance.Name)
	with.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.instance, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))}
	return r.cluster.Create(ctx, &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: with, Spec: kubevirt.MigrationSpec{VMIName: s.instance.Name}})
}

// leaver is the guest as the decision sees it.
func (s *run) leaver() evacuation.Guest {
	at := situation(s.launcher)
	reason, _ := s.fixed()
	switch {
	case s.instance.DeletionTimestamp != nil, s.past != nil, at == machine.Going, at == machine.Done, at == machine.Broken:
		return evacuation.Ended
	case at != machine.Up:
		return evacuation.Unready
	case reason != "":
		return evacuation.Fixed
	}
	return evacuation.Movable
}

// tries are the migrations of a guest that were made for one purpose, and the next.
type tries struct {
	moves   evacuation.Moves
	next    string        // the name of the next
	due     time.Duration // until the next; 0: at once
	text    string
	surplus []*kubevirt.VirtualMachineInstanceMigration // that ended long ago
}

const (
	evacuations = "kubevirt-evacuation-"
	// evacuateFirst and evacuateLast are how long to wait after a failure, the first time and at most.
	evacuateFirst = 10 * time.Second
	evacuateLast  = 5 * time.Minute
	// evacuationsKept is how many that ended are kept for people to look at, as upstream keeps them.
	evacuationsKept = 5
)

// tries looks at the migrations of an instance. Those from the launcher that it is in now are counted: each has the launcher and a
// number in its name, so one that was made just before a crash is not made twice.
func (r *Reconciler) tries(s *base, all []kubevirt.VirtualMachineInstanceMigration, purpose string) tries {
	if s.launcher == nil {
		return tries{}
	}
	uid := string(s.launcher.UID)
	prefix := purpose + uid[:min(8, len(uid))] + "-"
	t := tries{text: "it is about to be"}
	slices.SortFunc(all, func(a, b kubevirt.VirtualMachineInstanceMigration) int {
		if earlier(&a, &b) {
			return -1
		}
		return 1
	})
	taken, failed := map[string]bool{}, 0
	var ended []*kubevirt.VirtualMachineInstanceMigration
	for i := range all {
		m := &all[i]
		taken[m.Name] = true
		switch {
		case !m.Ended():
			t.moves, t.text = evacuation.Moving, fmt.Sprintf("VirtualMachineInstanceMigration %s is %s", m.Name, cmp.Or(m.Status.Phase, kubevirt.MigrationPending))
			continue
		case strings.HasPrefix(m.Name, purpose) && cluster.OwnedBy(m, s.instance.UID):
			ended = append(ended, m)
		}
		if at := m.Status.MigrationState; strings.HasPrefix(m.Name, prefix) && at != nil && at.Failed && at.EndTimestamp != nil {
			failed++
			t.due = at.EndTimestamp.Add(pause(failed)).Sub(r.clock.Now())
			t.text = fmt.Sprintf("VirtualMachineInstanceMigration %s: %s", m.Name, at.FailureReason)
		}
	}
	for n := 0; t.next == ""; n++ {
		if name := fmt.Sprintf("%s%d", prefix, n); !taken[name] {
			t.next = name
		}
	}
	if extra := len(ended) - evacuationsKept + 1; extra > 0 {
		t.surplus = ended[:extra]
	}
	if until, err := time.Parse(time.RFC3339, s.launcher.Annotations[render.AnnStay]); err == nil && purpose == evacuations {
		if left := until.Add(evacuateLast).Sub(r.clock.Now()); left > t.due {
			t.due, t.text = left, fmt.Sprintf("somebody cancelled its migration at %s, and it is not moved before %s; end the drain if it is to stay",
				until.Format(time.TimeOnly), until.Add(evacuateLast).Format(time.TimeOnly))
		}
	}
	if t.moves == evacuation.Moving || t.due <= 0 {
		t.due = 0
	} else {
		t.moves = evacuation.Resting
	}
	return t
}

// calledOff: somebody cancelled a migration that was made to empty a node. The wish to evict the guest's pod goes with it, and one that comes
// again, from a drain that is still under way, is not followed at once. It is done before the migration is said to have ended: the next would be
// made then.
func (r *Reconciler) calledOff(ctx context.Context, v *move) error {
	p := v.source
	if v.migration.Annotations[kubevirt.AnnEvacuation] == "" || v.migration.DeletionTimestamp == nil || p == nil || launcherpod.Ended(p) != "" || p.DeletionTimestamp != nil ||
		p.Annotations[render.AnnEvacuate] == "" {
		return nil
	}
	_, err := r.keepHere(ctx, p)
	return err
}

// keepHere takes the wish back that a launcher's guest leaves its node.
func (r *Reconciler) keepHere(ctx context.Context, launcher *corev1.Pod) (*corev1.Pod, error) {
	next := launcher.DeepCopy()
	delete(next.Annotations, render.AnnEvacuate)
	next.Annotations[render.AnnStay] = r.clock.Now().UTC().Format(time.RFC3339)
	return next, r.cluster.Change(ctx, launcher, next)
}

// pause is how long to wait after that many failures.
func pause(failed int) time.Duration {
	return min(evacuateFirst<<min(failed-1, 10), evacuateLast)
}

// leavingType is the condition of a guest that is to leave its node, as upstream names it.
const leavingType = "EvictionRequested"

func (l leaving) condition() []kubevirt.Condition {
	if l.node == "" {
		return nil
	}
	return []kubevirt.Condition{{Type: leavingType, Status: corev1.ConditionTrue, Reason: string(l.row.Reason), Message: l.text}}
}

// tellLeaving tells people once what becomes of a guest that is to leave.
func (r *Reconciler) tellLeaving(s *run, l leaving) {
	known := func(c kubevirt.Condition) bool {
		return c.Type == leavingType && c.Reason == string(l.row.Reason)
	}
	if slices.ContainsFunc(s.instance.Status.Conditions, known) {
		return
	}
	kind := corev1.EventTypeNormal
	if l.row.Warn {
		kind = corev1.EventTypeWarning
	}
	r.cluster.Event(s.instance, kind, string(l.row.Reason), l.text)
}

// sooner is the shorter of two waits; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// allInstances brings back every instance: what holds for all of them has changed.
func (r *Reconciler) allInstances(ctx context.Context, _ client.Object) []reconcile.Request {
	var list kubevirt.VirtualMachineInstanceList
	if err := r.reader.List(ctx, &list); err != nil {
		log.FromContext(ctx).Error(err, "list instances")
	}
	var due []reconcile.Request
	for i := range list.Items {
		due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return due
}
