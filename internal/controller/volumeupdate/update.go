package volumeupdate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/attempts"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/decide/update"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// A volume of a running machine that its owner changes to another claim is sent there by a migration whose target has the other claim. The
// target's own orders say which; the instance is given the new claims when the guest has come. docs/decisions/0022 has the reasons.

const (
	// Updating are the first letters of the names of migrations that are made for changed volumes.
	Updating = "kubevirt-volumes-" // the first letters of the names of migrations that are made for it
	// updateAgain is how often a blocked change is checked: the obstacle is not always an object that is watched.
	updateAgain = 10 * time.Second
)

// Plan is the plan for changed volumes, and the state to report.
type Plan struct {
	plan  update.Plan
	tries attempts.Tries
	stale *kubevirt.VirtualMachineInstanceMigration // sends disks into claims that are not wanted any more; nil: none does
	Row   state.UpdateRow
	Text  string // empty: there is nothing to say
	Again time.Duration
}

// Plan decides what is done about changed volumes.
func (r *Reconciler) Plan(ctx context.Context, s *observed.Instance) (Plan, error) {
	if !s.Updates.Compared {
		return Plan{}, nil
	}
	all, err := r.Read.MigrationsOf(ctx, s.Object.Namespace, s.Object.Name)
	if err != nil {
		return Plan{}, err
	}
	u := Plan{tries: r.Tries.Of(&s.Run, all, Updating), stale: StaleUpdate(s, all)}
	facts := update.Facts{Live: s.Updates.Live, Guest: update.Guest(s.Leaver()), Moves: update.Moves(u.tries.Moves), Stale: u.stale != nil}
	switch {
	case len(s.Updates.All) > 0 && slices.ContainsFunc(s.Updates.All, func(c observed.Changed) bool { return c.Cause != "" }):
		facts.Change = update.Refused
	case len(s.Updates.All) > 0:
		facts.Change = update.Possible
	}
	u.plan = update.Decide(facts)
	if len(u.plan.Do) > 0 {
		log.FromContext(ctx).V(1).Info("decided", "rule", u.plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", u.plan.Do)
	}
	if u.plan.State == "" {
		return u, nil
	}
	u.Row, u.Again = state.OfUpdate(u.plan.State), u.tries.Due
	if u.plan.State == state.UpdateRefused || u.plan.State == state.UpdateFixed {
		u.Again = updateAgain
	}
	u.Text = u.Row.Text(updateText(s, u.plan.State, u.tries))
	return u, nil
}

// Update has the disks of changed volumes sent into their new claims.
func (r *Reconciler) Update(ctx context.Context, s *observed.Instance, u Plan) error {
	for _, a := range u.plan.Do {
		var err error
		switch a {
		case update.CallOff:
			err = r.Cluster.Delete(ctx, u.stale)
		case update.Migrate:
			err = r.Tries.Make(ctx, &s.Run, u.tries, metav1.ObjectMeta{Labels: map[string]string{kubevirt.LabelVolumeUpdate: s.Object.Name}})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return nil
}

// StaleUpdate is a migration that was made for changed volumes, and whose claims are not the ones that are wanted any more; nil: there is
// none. One whose guest has come has done its work.
func StaleUpdate(s *observed.Instance, all []kubevirt.VirtualMachineInstanceMigration) *kubevirt.VirtualMachineInstanceMigration {
	for i := range all {
		m := &all[i]
		if m.Ended() || m.DeletionTimestamp != nil || !strings.HasPrefix(m.Name, Updating) || !cluster.OwnedBy(m, s.Object.UID) ||
			launcherpod.Incoming(s.Launcher) == m.UID {
			continue
		}
		name := launcherpod.TargetName(s.Object, m.UID)
		at := slices.IndexFunc(s.Others, func(p *corev1.Pod) bool { return p.Name == name })
		if at >= 0 && adopted(s, s.Others[at]) {
			continue // its guest has come, and only the launchers do not say so yet
		}
		if len(s.Updates.Due()) == 0 || at >= 0 && !maps.Equal(diskstate.UpdatedClaims(s.Others[at]), s.Updates.Names()) {
			return m
		}
	}
	return nil
}

// adopted reports whether the instance has the claims that a target has for changed volumes: that is written when the guest has come.
func adopted(s *observed.Instance, target *corev1.Pod) bool {
	updated := diskstate.UpdatedClaims(target)
	for _, v := range s.Object.Spec.Volumes {
		if name, _ := render.ClaimOf(v); name == updated[v.Name] {
			delete(updated, v.Name)
		}
	}
	return len(updated) == 0 && len(launcherpod.Machine(target).Updated) > 0
}

func updateText(s *observed.Instance, reason state.UpdateReason, t attempts.Tries) string {
	if reason == state.UpdateFixed {
		_, why := s.Fixed()
		return why
	}
	var texts []string
	for _, c := range s.Updates.All {
		name, _ := render.ClaimOf(c.To)
		switch {
		case reason == state.UpdateRefused && c.Cause != "":
			texts = append(texts, state.OfUpdateCause(c.Cause, c.Volume, name, c.Detail))
		case reason != state.UpdateRefused:
			texts = append(texts, fmt.Sprintf("volume %s to PersistentVolumeClaim %s", c.Volume, name))
		}
	}
	text := strings.Join(texts, "; ")
	if reason == state.UpdateMoving || reason == state.UpdateResting {
		text += " (" + t.Text + ")"
	}
	return text
}

// Condition returns the condition of the instance while its volumes differ from those of its machine, as upstream does.
func (u Plan) Condition() []kubevirt.Condition {
	if u.Text == "" {
		return nil
	}
	return []kubevirt.Condition{{Type: "VolumesChange", Status: report.Truth(!u.Row.Restart), Reason: string(u.Row.Reason), Message: u.Text}}
}
