package schedule

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/timetable"
)

// Label is on what a schedule makes: the schedule's UID. It is for people and for queues, and proves nothing.
const Label = "berth.dev/schedule"

// run is a backup or a snapshot that a schedule may have made.
type run struct {
	timetable.Run
	obj        client.Object
	claim      string // that has its files; "" of a snapshot
	checkpoint string // its name there; "": it has no files
	why        string // what it says
}

// The names of what a schedule makes. Each has a digest of UIDs, so that an object of such a name was made by the schedule, or by a user who wanted it to be
// taken for that: no user can give the name to an existing object, whatever they write on it.
const (
	momentForm = "200601021504"
	longest    = 60 // of the name of the schedule, and of that of the machine
)

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "/")))
	return hex.EncodeToString(sum[:5])
}

func cut(name string) string { return strings.TrimRight(name[:min(len(name), longest)], "-.") }

// runName is the name of what is made of a machine for a moment.
func runName(s *accessv1.MachineSchedule, vm *kubevirt.VirtualMachine, at time.Time) string {
	moment := at.UTC().Format(momentForm)
	return strings.Join([]string{cut(s.Name), cut(vm.Name), moment, digest(string(s.UID), string(vm.UID), moment)}, "-")
}

// trackerName is the name of the tracker of a machine.
func trackerName(s *accessv1.MachineSchedule, vm *kubevirt.VirtualMachine) string {
	return strings.Join([]string{cut(s.Name), cut(vm.Name), digest(string(s.UID), string(vm.UID))}, "-")
}

// removalName is the name of the worker that removes backups of a machine.
func removalName(s *accessv1.MachineSchedule, vm *kubevirt.VirtualMachine) string {
	return "backup-removal-" + digest(string(s.UID), string(vm.UID))
}

var moments = regexp.MustCompile(`-([0-9]{12})-[0-9a-f]{10}$`)

// momentOf reads the moment in the name of a run.
func momentOf(name string) (time.Time, bool) {
	found := moments.FindStringSubmatch(name)
	if found == nil {
		return time.Time{}, false
	}
	at, err := time.Parse(momentForm, found[1])
	return at, err == nil
}

func kindOf(s *accessv1.MachineSchedule) string {
	if s.Spec.Backup != nil {
		return "VirtualMachineBackup"
	}
	return "VirtualMachineSnapshot"
}

// named reports whether something has the name of a run.
func (r *Reconciler) named(ctx context.Context, s *accessv1.MachineSchedule, name string) (bool, error) {
	if s.Spec.Backup != nil {
		b, err := cluster.Get[backupv1.VirtualMachineBackup](ctx, r.live, s.Namespace, name)
		return b != nil, err
	}
	v, err := cluster.Get[snapshotv1.VirtualMachineSnapshot](ctx, r.live, s.Namespace, name)
	return v != nil, err
}

// made lists what may have been made by the schedule, by the name of its source: a tracker, or a machine. It reads from the API server: the name of an object that the cache lacks
// would be used for the next one.
func (r *Reconciler) made(ctx context.Context, s *accessv1.MachineSchedule) (map[string][]run, error) {
	out := map[string][]run{}
	add := func(source string, obj client.Object, fill func(*run)) {
		at, ok := momentOf(obj.GetName())
		if !ok || obj.GetDeletionTimestamp() != nil {
			return
		}
		one := run{obj: obj}
		one.At = at
		fill(&one)
		out[source] = append(out[source], one)
	}
	if s.Spec.Backup != nil {
		var all backupv1.VirtualMachineBackupList
		if err := r.live.List(ctx, &all, client.InNamespace(s.Namespace)); err != nil {
			return nil, fmt.Errorf("list backups: %w", err)
		}
		for i := range all.Items {
			if b := &all.Items[i]; b.Spec.Source.Kind == backupv1.Tracker {
				add(b.Spec.Source.Name, b, func(r *run) { r.backup(b) })
			}
		}
		return out, nil
	}
	var all snapshotv1.VirtualMachineSnapshotList
	if err := r.live.List(ctx, &all, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	for i := range all.Items {
		v := &all.Items[i]
		add(v.Spec.Source.Name, v, func(r *run) { r.snapshot(v) })
	}
	return out, nil
}

// ours returns what the schedule made of a machine, in the order of the moments.
func ours(s *accessv1.MachineSchedule, vm *kubevirt.VirtualMachine, made map[string][]run) []run {
	source := vm.Name
	if s.Spec.Backup != nil {
		source = trackerName(s, vm)
	}
	out := slices.DeleteFunc(slices.Clone(made[source]), func(r run) bool { return r.obj.GetName() != runName(s, vm, r.At) })
	slices.SortFunc(out, func(a, b run) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.obj.GetName(), b.obj.GetName()))
	})
	return out
}

// backup reads how a backup ended.
func (r *run) backup(b *backupv1.VirtualMachineBackup) {
	r.claim = b.Spec.Claim()
	if b.Status == nil {
		return
	}
	r.checkpoint, r.Full = ptr.Deref(b.Status.CheckpointName, ""), b.Status.Type == backupv1.Full
	for kind, end := range map[string]timetable.End{backupv1.ConditionProgressing: timetable.Unfinished, backupv1.ConditionFailed: timetable.Bad, backupv1.ConditionComplete: timetable.Good} {
		if c := b.Condition(kind); c != nil && c.Status == metav1.ConditionTrue {
			r.End, r.why = end, c.Message
		}
	}
}

// snapshot reads how a snapshot ended.
func (r *run) snapshot(v *snapshotv1.VirtualMachineSnapshot) {
	r.Full = true
	switch {
	case v.Status.Phase == snapshotv1.Failed:
		r.End = timetable.Bad
	case v.Status.Phase == snapshotv1.Succeeded && ptr.Deref(v.Status.ReadyToUse, false):
		r.End = timetable.Good
	}
	for _, c := range v.Status.Conditions {
		if c.Message != "" {
			r.why = c.Message
		}
	}
	if e := v.Status.Error; e != nil && e.Message != nil {
		r.why = *e.Message
	}
}

// old returns the runs of a machine that are to be removed next: those without files, or a chain.
func (s *seen) old(m *machine) []run {
	all := make([]timetable.Run, 0, len(m.runs))
	for _, r := range m.runs {
		all = append(all, r.Run)
	}
	surplus := timetable.Surplus(all, keepOf(s.of), s.zone)
	var bare []run
	for _, i := range surplus {
		if m.runs[i].checkpoint == "" {
			bare = append(bare, m.runs[i])
		}
	}
	if len(bare) > 0 || len(surplus) == 0 {
		return bare
	}
	first := surplus[0]
	together := []int{first}
	for _, chain := range timetable.Chains(all) {
		if slices.Contains(chain, first) {
			together = chain
		}
	}
	var out []run
	for _, i := range together {
		if m.runs[i].claim == m.runs[first].claim {
			out = append(out, m.runs[i])
		}
	}
	return out
}

func keepOf(s *accessv1.MachineSchedule) *timetable.Keep {
	k := s.Spec.Keep
	if k == nil {
		return nil
	}
	return &timetable.Keep{Last: int(k.Last), Hourly: int(k.Hourly), Daily: int(k.Daily), Weekly: int(k.Weekly), Monthly: int(k.Monthly)}
}
