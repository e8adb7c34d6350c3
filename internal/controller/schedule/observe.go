package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/worker"
	"github.com/berth-vm/berth/internal/decide/schedule"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/timetable"
)

// mostMachines is how many machines of one schedule are looked at: each has an entry in its status.
const mostMachines = 500

// annBegun is on a schedule: for which moment something was made last, by the UID of the machine. What was made then may be deleted meanwhile, and is not
// made again.
const annBegun = "berth.dev/begun"

// seen is one schedule and everything its next step depends on, read once.
type seen struct {
	of       *accessv1.MachineSchedule
	now      time.Time
	times    timetable.Times
	zone     *time.Location
	wrong    error
	begun    map[types.UID]time.Time
	moment   time.Time // the last one that is not too late; zero: there is none
	machines []*machine
	more     int // machines that are not looked at
}

// machine is one machine of a schedule.
type machine struct {
	name    string
	vm      *kubevirt.VirtualMachine // nil: it is not there
	runs    []run                    // what the schedule made of it, in the order of its moments
	tracker schedule.Tracker
	taken   string // the object that has the name which the next backup or snapshot needs; empty: the name is free
	surplus []run  // that are to be removed next
	claim   *corev1.PersistentVolumeClaim
	worker  *corev1.Pod  // that removes files
	report  *task.Report // of a worker that ended; nil: it left none
	begins  bool         // something was made for the moment in this turn
	user    string       // who has the claim that files are to be removed from

	say     state.ScheduleReason
	detail  string // for what is said, if it is not found among the facts
	removal state.ScheduleReason
}

// observe reads what a schedule depends on.
func (r *Reconciler) observe(ctx context.Context, of *accessv1.MachineSchedule) (*seen, error) {
	s := &seen{of: of, now: r.clock.Now(), zone: time.UTC, begun: map[types.UID]time.Time{}}
	_ = json.Unmarshal([]byte(of.Annotations[annBegun]), &s.begun) // what makes no sense was not written by us, and says nothing
	if s.times, s.wrong = timetable.Parse(of.Spec.Schedule, of.Spec.TimeZone); s.wrong == nil {
		s.zone, _ = time.LoadLocation(of.Spec.TimeZone) // it was parsed
		since := s.now.Add(-of.Spec.Deadline())
		if of.CreationTimestamp.After(since) {
			since = of.CreationTimestamp.Time
		}
		s.moment = s.times.Latest(since, s.now)
	}
	if err := r.observeMachines(ctx, s); err != nil {
		return nil, err
	}
	made, err := r.made(ctx, of)
	if err != nil {
		return nil, err
	}
	for _, m := range s.machines {
		if err := r.observeMachine(ctx, s, m, made); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// observeMachines finds the machines, in the namespace of the schedule alone.
func (r *Reconciler) observeMachines(ctx context.Context, s *seen) error {
	if name := s.of.Spec.Machine; name != "" {
		vm, err := cluster.Get[kubevirt.VirtualMachine](ctx, r.reader, s.of.Namespace, name)
		if vm != nil && vm.DeletionTimestamp != nil {
			vm = nil
		}
		s.machines = []*machine{{name: name, vm: vm}}
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(s.of.Spec.Selector)
	if err != nil {
		s.wrong = fmt.Errorf("the selector cannot be read: %w", err)
		return nil
	}
	var all kubevirt.VirtualMachineList
	if err := r.reader.List(ctx, &all, client.InNamespace(s.of.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	for i := range all.Items {
		if vm := &all.Items[i]; vm.DeletionTimestamp == nil {
			s.machines = append(s.machines, &machine{name: vm.Name, vm: vm})
		}
	}
	slices.SortFunc(s.machines, func(a, b *machine) int { return strings.Compare(a.name, b.name) })
	if s.more = max(0, len(s.machines)-mostMachines); s.more > 0 {
		s.machines = s.machines[:mostMachines]
	}
	return nil
}

func (r *Reconciler) observeMachine(ctx context.Context, s *seen, m *machine, made map[string][]run) error {
	if m.vm == nil {
		return nil
	}
	m.runs = ours(s.of, m.vm, made)
	if err := r.observeNames(ctx, s, m); err != nil {
		return err
	}
	if s.of.Spec.Backup == nil {
		m.surplus = s.old(m)
		return nil
	}
	var err error
	if m.worker, err = cluster.Owned[corev1.Pod](ctx, r.reader, s.of.UID, s.of.Namespace, removalName(s.of, m.vm)); err != nil {
		return err
	}
	if m.worker != nil {
		m.report = worker.Report(m.worker)
	}
	if m.surplus = s.old(m); len(m.surplus) == 0 {
		return nil
	}
	m.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, s.of.Namespace, m.surplus[0].claim)
	if err != nil || m.claim == nil {
		return err
	}
	other, err := r.records.Blocker(ctx, m.claim, accessv1.Holder{Mode: accessv1.WriteExclusive, Use: accessv1.UseBackup}, m.worker)
	if err == nil && other != nil {
		m.user = diskaccess.Who(other, s.of.Namespace)
	}
	return err
}

// observeNames finds out whether another object has the name that the next backup, its tracker or the next snapshot needs.
func (r *Reconciler) observeNames(ctx context.Context, s *seen, m *machine) error {
	if s.of.Spec.Backup != nil {
		name := trackerName(s.of, m.vm)
		t, err := cluster.Get[backupv1.VirtualMachineBackupTracker](ctx, r.reader, s.of.Namespace, name)
		if err != nil {
			return err
		}
		switch {
		case t == nil:
			m.tracker = schedule.Missing
		case !cluster.OwnedBy(t, s.of.UID) || t.Spec.Source.Name != m.name:
			m.tracker, m.taken = schedule.Foreign, "VirtualMachineBackupTracker "+name
			return nil
		default:
			m.tracker = schedule.There
		}
	}
	if !m.due(s) {
		return nil
	}
	name := runName(s.of, m.vm, s.moment)
	there, err := r.named(ctx, s.of, name)
	if err == nil && there {
		m.taken = kindOf(s.of) + " " + name // it is not among those that are ours
	}
	return err
}

// due reports whether a moment has come for which nothing was made.
func (m *machine) due(s *seen) bool {
	if m.vm == nil || s.moment.IsZero() || m.vm.CreationTimestamp.After(s.moment) || !s.begun[m.vm.UID].Before(s.moment) {
		return false
	}
	return !slices.ContainsFunc(m.runs, func(r run) bool { return !r.At.Before(s.moment) })
}

func (m *machine) facts(s *seen) schedule.Facts {
	f := schedule.Facts{Wrong: s.wrong != nil, Suspended: s.of.Spec.Suspend, Gone: m.vm == nil, Due: m.due(s), Taken: m.taken != "", Tracker: m.tracker}
	if last := m.last(); last != nil {
		f.Last = map[timetable.End]schedule.Last{timetable.Unfinished: schedule.GoingOn, timetable.Good: schedule.Succeeded, timetable.Bad: schedule.Failed}[last.End]
	}
	if m.goingOn() {
		f.Last = schedule.GoingOn
	}
	f.Overdue = s.overdue(m) != nil
	return f
}

// last is the newest run; nil: there is none.
func (m *machine) last() *run {
	if len(m.runs) == 0 {
		return nil
	}
	return &m.runs[len(m.runs)-1]
}

func (m *machine) goingOn() bool {
	return slices.ContainsFunc(m.runs, func(r run) bool { return r.End == timetable.Unfinished })
}

// good is the newest good run; nil: there is none.
func (m *machine) good() *run {
	for i := len(m.runs) - 1; i >= 0; i-- {
		if m.runs[i].End == timetable.Good {
			return &m.runs[i]
		}
	}
	return nil
}

// overdue returns since when there should have been another good run; nil: it is not too late.
func (s *seen) overdue(m *machine) *time.Time {
	if s.wrong != nil || m.vm == nil || s.of.Spec.Suspend {
		return nil
	}
	since := s.of.CreationTimestamp.Time
	if m.vm.CreationTimestamp.After(since) {
		since = m.vm.CreationTimestamp.Time
	}
	if good := m.good(); good != nil {
		since = good.At
	}
	due := s.times.Due(since)
	if due.IsZero() || due.After(s.now) {
		return nil
	}
	return &due
}

// retry is how long after a worker failed another one is made.
const retry = 10 * time.Minute

// old returns the facts about the removal of old runs.
func (m *machine) old(s *seen) schedule.Old {
	o := schedule.Old{Wrong: s.wrong != nil, GoingOn: m.goingOn(), Surplus: len(m.surplus) > 0}
	o.Files = o.Surplus && m.surplus[0].checkpoint != "" && m.claim != nil && m.claim.DeletionTimestamp == nil
	p := m.worker
	if p == nil {
		return o
	}
	switch {
	case p.DeletionTimestamp != nil:
		o.Worker = schedule.Leaving
	case m.report != nil && m.report.Outcome == task.Done:
		o.Worker = schedule.Done
	case m.report != nil && m.report.Reason != task.Interrupted:
		o.Worker = schedule.Broken
		if ended := pods.Terminated(p); ended != nil {
			o.Again = s.now.Sub(ended.FinishedAt.Time) > retry
		}
	case pods.Over(p):
		o.Worker = schedule.Lost
	case diskaccess.Gated(p):
		o.Worker = schedule.Gated
	default:
		o.Worker = schedule.Working
	}
	return o
}
