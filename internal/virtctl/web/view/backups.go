package view

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backup "github.com/berth-vm/berth/api/backup/v1alpha1"
)

// backups are those of a machine, the newest first.
func (o *Objects) backups(namespace, machine string) []Backup {
	tracked := map[string]bool{} // the trackers of the machine
	for _, t := range o.Trackers {
		tracked[t.Name] = tracked[t.Name] || t.Namespace == namespace && t.Spec.Source.Name == machine
	}
	var out []Backup
	for _, b := range o.Backups {
		of := b.Spec.Source
		if b.Namespace == namespace && (of.Kind == backup.Machine && of.Name == machine || of.Kind == backup.Tracker && tracked[of.Name]) {
			out = append(out, shownBackup(b, machine))
		}
	}
	slices.SortFunc(out, func(a, b Backup) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Name, b.Name)) })
	return out
}

func shownBackup(b *backup.VirtualMachineBackup, machine string) Backup {
	shown := Backup{Name: b.Name, Claim: b.Spec.Claim(), Tone: Busy, At: b.CreationTimestamp.Time}
	if b.Status == nil {
		return shown
	}
	shown.Checkpoint, shown.Kind = ptr.Deref(b.Status.CheckpointName, ""), string(b.Status.Type)
	switch said := b.Status.Conditions; {
	case meta.IsStatusConditionTrue(said, backup.ConditionComplete):
		shown.Tone = Good
		if shown.Checkpoint != "" && !b.Spec.Pulled() {
			shown.As = machine + "-" + shown.Checkpoint
		}
	case meta.IsStatusConditionTrue(said, backup.ConditionFailed):
		shown.Tone, shown.Why = Bad, meta.FindStatusCondition(said, backup.ConditionFailed).Message
	default:
		if c := meta.FindStatusCondition(said, backup.ConditionProgressing); c != nil {
			shown.Why = c.Message
		}
	}
	return shown
}

// schedules are those that a machine is in, by name.
func (o *Objects) schedules(namespace string, machine types.UID) []Schedule {
	var out []Schedule
	for _, s := range o.Schedules {
		at := slices.IndexFunc(s.Status.Machines, func(m accessv1.ScheduledMachine) bool { return m.UID == machine })
		if s.Namespace == namespace && at >= 0 {
			out = append(out, shownSchedule(s, s.Status.Machines[at]))
		}
	}
	slices.SortFunc(out, func(a, b Schedule) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func shownSchedule(s *accessv1.MachineSchedule, m accessv1.ScheduledMachine) Schedule {
	shown := Schedule{Name: s.Name, What: "snapshots", When: s.Spec.Schedule, Why: m.Message, Kept: m.Kept, Tone: Good}
	if s.Spec.Backup != nil {
		shown.What = "backups in " + s.Spec.Backup.PvcName
	}
	if s.Spec.TimeZone != "" {
		shown.When += " " + s.Spec.TimeZone
	}
	if m.LastSuccess != nil {
		shown.Last = m.LastSuccess.Time
	}
	switch {
	case s.Spec.Suspend:
		shown.When, shown.Tone = "suspended", Off
		return shown
	case m.Overdue != nil || m.LastFailure != nil:
		shown.Tone = Bad
	case m.LastSuccess == nil:
		shown.Tone = Waiting
	}
	if s.Status.Next != nil {
		shown.Next = s.Status.Next.Time
	}
	return shown
}
