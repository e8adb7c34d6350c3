package view

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

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
