package status

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	"github.com/berth-vm/berth/internal/virtctl/backup"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// Backups is what a namespace has for the backups of machines.
type Backups struct {
	Trackers  []backupv1.VirtualMachineBackupTracker
	All       []backupv1.VirtualMachineBackup
	Schedules []accessv1.MachineSchedule
}

// readBackups reads what the user may see of it. A cluster that does not have the kinds, or does not show them, has none.
func readBackups(ctx context.Context, c *kube.Client) (b Backups, err error) {
	if b.Trackers, err = seen(kube.Trackers.List(ctx, c)); err != nil {
		return b, err
	}
	if b.All, err = seen(kube.Backups.List(ctx, c)); err != nil {
		return b, err
	}
	b.Schedules, err = seen(kube.Schedules.List(ctx, c))
	return b, err
}

func seen[T any](all []T, err error) ([]T, error) {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	return all, err
}

// nodes are the trackers of a machine, its last backup, and its schedules.
func (b Backups) nodes(machine string, uid types.UID) []Node {
	var out []Node
	sources := map[string]bool{backupv1.Machine + "/" + machine: true}
	for _, t := range b.Trackers {
		if t.Spec.Source.Name != machine {
			continue
		}
		sources[backupv1.Tracker+"/"+t.Name] = true
		n := Node{Kind: "tracker", Name: t.Name, Phase: "no backup yet"}
		if t.Status != nil && t.Status.LatestCheckpoint != nil {
			n.Phase = "last is " + t.Latest()
			if at := t.Status.LatestCheckpoint.CreationTime; at != nil {
				n.Since = at.Time
			}
		}
		out = append(out, n)
	}
	var last *backupv1.VirtualMachineBackup
	for i := range b.All {
		one := &b.All[i]
		if sources[one.Spec.Source.Kind+"/"+one.Spec.Source.Name] && (last == nil || last.CreationTimestamp.Before(&one.CreationTimestamp)) {
			last = one
		}
	}
	if last != nil {
		n := Node{Kind: "last backup", Name: last.Name, Since: last.CreationTimestamp.Time, Why: backup.Says(last)}
		if last.Status != nil {
			n.Phase = string(last.Status.Type)
		}
		out = append(out, n)
	}
	for _, s := range b.Schedules {
		at := slices.IndexFunc(s.Status.Machines, func(m accessv1.ScheduledMachine) bool { return m.Name == machine && m.UID == uid })
		if at < 0 {
			continue
		}
		m := s.Status.Machines[at]
		n := Node{Kind: "schedule", Name: s.Name, Phase: m.Reason, Why: m.Message}
		if m.Removal != "" {
			n.Parts = []Node{{Kind: "removal", Name: "of old ones", Why: m.Removal}}
		}
		out = append(out, n)
	}
	return out
}
