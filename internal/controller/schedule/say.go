package schedule

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/timetable"
)

// mostWords bounds what is copied from other objects into the status.
const mostWords = 512

// report writes the state of a schedule.
func (r *Reconciler) report(ctx context.Context, s *seen) error {
	next := accessv1.MachineScheduleStatus{}
	if s.wrong == nil && !s.of.Spec.Suspend {
		next.Next = instant(s.times.Next(s.now))
	}
	for _, m := range s.machines {
		if m.vm == nil {
			continue
		}
		one := s.entry(m)
		next.Machines = append(next.Machines, one)
		if one.LastSuccess != nil && (next.LastSuccess == nil || next.LastSuccess.Before(one.LastSuccess)) {
			next.LastSuccess = one.LastSuccess
		}
		if f := one.LastFailure; f != nil && (next.LastFailure == nil || next.LastFailure.Time.Before(&f.Time)) {
			next.LastFailure = f
		}
	}
	old := s.of.Status
	next.Conditions = r.conditions(s, old.Conditions)
	if equality.Semantic.DeepEqual(old, next) {
		return nil
	}
	err := r.cluster.ApplyStatus(ctx, &accessv1.MachineSchedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.of.Namespace, Name: s.of.Name, UID: s.of.UID}, Status: next})
	if err != nil {
		return err
	}
	r.tell(s, old)
	return nil
}

// tell has an event for each machine whose reason changed.
func (r *Reconciler) tell(s *seen, old accessv1.MachineScheduleStatus) {
	was := map[string]string{}
	for _, m := range old.Machines {
		was[m.Name] = m.Reason
	}
	for _, m := range s.machines {
		if was[m.name] == string(m.say) {
			continue
		}
		row, kind := state.OfSchedule(m.say), corev1.EventTypeNormal
		if row.Warn {
			kind = corev1.EventTypeWarning
		}
		r.cluster.Turn(s.of, kind, string(m.say), fmt.Sprintf("VirtualMachine %s: %s", m.name, row.Text(s.detail(m))))
	}
}

// entry is what is said of one machine.
func (s *seen) entry(m *machine) accessv1.ScheduledMachine {
	one := accessv1.ScheduledMachine{Name: m.name, UID: m.vm.UID, Reason: string(m.say), Message: state.OfSchedule(m.say).Text(s.detail(m))}
	for _, r := range m.runs {
		switch r.End {
		case timetable.Good:
			one.LastSuccess, one.LastFailure = instant(r.At), nil
			one.Kept++
		case timetable.Bad:
			one.LastFailure = &accessv1.ScheduleFailure{Time: metav1.NewTime(r.At), Name: r.obj.GetName(), Message: short(r.why)}
		case timetable.Unfinished:
		}
	}
	if due := s.overdue(m); due != nil {
		one.Overdue = instant(*due)
	}
	if m.removal != state.ScheduleKept {
		one.Removal = state.OfSchedule(m.removal).Text(m.removing())
	}
	return one
}

// removing says how the removal of old backups goes.
func (m *machine) removing() string {
	switch {
	case m.removal == state.ScheduleNotRemoved && m.report != nil:
		return short(m.report.Detail)
	case m.user != "":
		return "waiting for the claim: " + m.user
	case m.worker != nil:
		return "pod " + m.worker.Name
	}
	return ""
}

// detail returns the value of {detail} in the row of a machine.
func (s *seen) detail(m *machine) string {
	if m.detail != "" {
		return short(m.detail)
	}
	next := "the next one is made at " + stamp(s.upcoming())
	switch m.say {
	case state.ScheduleInvalid:
		return s.wrong.Error()
	case state.ScheduleNoMachine:
		return "VirtualMachine " + m.name
	case state.ScheduleTaken:
		return m.taken
	case state.SchedulePrevious, state.ScheduleGoingOn:
		return m.waits()
	case state.ScheduleFailed:
		return fmt.Sprintf("%s; %s", m.last().says(), next)
	case state.ScheduleOverdue:
		return s.late(m)
	case state.ScheduleWaiting:
		return next
	case state.ScheduleGood:
		return fmt.Sprintf("%s of %s; %s", m.last().obj.GetName(), stamp(m.last().At), next)
	case state.ScheduleSuspended:
		if good := m.good(); good != nil {
			return "the last good one is of " + stamp(good.At)
		}
		return "there is none"
	case state.ScheduleKept, state.ScheduleRemoving, state.ScheduleNotRemoved, state.ScheduleTooMany:
	}
	return ""
}

func (s *seen) upcoming() time.Time {
	if s.wrong != nil {
		return time.Time{}
	}
	return s.times.Next(s.now)
}

// waits says what the run waits for that has not ended; one that was made in this turn says nothing yet.
func (m *machine) waits() string {
	for i := len(m.runs) - 1; i >= 0; i-- {
		if m.runs[i].End == timetable.Unfinished {
			return m.runs[i].says()
		}
	}
	return ""
}

// late says since when another good run is missing.
func (s *seen) late(m *machine) string {
	text := ""
	if good := m.good(); good != nil {
		text = "it is of " + stamp(good.At) + ", and "
	}
	if due := s.overdue(m); due != nil {
		text += "there should have been another by " + stamp(*due)
	}
	if waits := m.waits(); waits != "" {
		text += "; " + waits
	}
	return text
}

// says names a run and what it says.
func (r *run) says() string {
	if r == nil {
		return ""
	}
	if r.why == "" {
		return r.obj.GetName()
	}
	return r.obj.GetName() + ": " + short(r.why)
}

func short(text string) string { return text[:min(len(text), mostWords)] }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

func instant(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := metav1.NewTime(t).Rfc3339Copy()
	return &at
}

// conditions returns Ready and UpToDate, with the time of those that did not change.
func (r *Reconciler) conditions(s *seen, old []metav1.Condition) []metav1.Condition {
	ready := metav1.Condition{Type: accessv1.ScheduleReady, Status: metav1.ConditionTrue, Reason: "Valid", Message: "the schedule can be carried out"}
	if s.wrong != nil {
		row := state.OfSchedule(state.ScheduleInvalid)
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, string(row.Reason), row.Text(short(s.wrong.Error()))
	}
	next := []metav1.Condition{ready, s.upToDate()}
	for i := range next {
		c := &next[i]
		c.LastTransitionTime = metav1.NewTime(r.clock.Now()).Rfc3339Copy()
		for _, was := range old {
			if was.Type == c.Type && was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
	return next
}

// upToDate tells of the first machine with which something is wrong, else of the first.
func (s *seen) upToDate() metav1.Condition {
	c := metav1.Condition{Type: accessv1.ScheduleUpToDate, Status: metav1.ConditionTrue}
	say := func(reason state.ScheduleReason, detail, of string) {
		row := state.OfSchedule(reason)
		c.Reason, c.Message = string(reason), of+row.Text(detail)
		if !row.UpToDate {
			c.Status = metav1.ConditionFalse
		}
	}
	wrong := 0
	for _, m := range s.machines {
		if !state.OfSchedule(m.say).UpToDate {
			wrong++
		}
	}
	switch {
	case s.wrong != nil:
		say(state.ScheduleInvalid, short(s.wrong.Error()), "")
		return c
	case s.more > 0:
		say(state.ScheduleTooMany, fmt.Sprintf("%d machines", len(s.machines)+s.more), "")
		return c
	case len(s.machines) == 0:
		say(state.ScheduleNoMachine, "VirtualMachine with the labels of the selector", "")
		return c
	}
	for _, m := range s.machines {
		if wrong > 0 && state.OfSchedule(m.say).UpToDate {
			continue
		}
		of := ""
		if len(s.machines) > 1 {
			of = fmt.Sprintf("%d of %d machines are up to date; %s: ", len(s.machines)-wrong, len(s.machines), m.name)
		}
		say(m.say, s.detail(m), of)
		return c
	}
	return c
}

// rest is how long nothing happens by itself.
func (s *seen) rest() time.Duration {
	rest := time.Hour
	for _, m := range s.machines {
		if m.removal != state.ScheduleKept || m.goingOn() || m.begins {
			rest = look
		}
		if good := m.good(); s.wrong == nil && good != nil {
			if due := s.times.Due(good.At); due.After(s.now) {
				rest = min(rest, due.Sub(s.now))
			}
		}
	}
	if next := s.upcoming(); !next.IsZero() {
		rest = min(rest, next.Sub(s.now))
	}
	return cmp.Or(max(rest, time.Second), look)
}
