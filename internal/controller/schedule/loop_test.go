package schedule

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// TestCrashes: whatever write is refused, or is the controller's last, four minutes end in the same place: four backups were made, each once, in chains of two, and the
// first chain is gone with its files.
func TestCrashes(t *testing.T) {
	pairs := func(s *accessv1.MachineScheduleSpec) { s.Backup.Increments, s.Keep.Last = ptr.To[int32](1), 1 }
	calm := newWorld(t, backups(pairs))
	calm.run(4)
	want := calm.everything()
	for _, part := range []string{"-202601051003-", "-202601051004-", "tracker often-web-", "files of-often-web-202601051003-", `"reason":"UpToDate"`, `"lastSuccess":"2026-01-05T10:04:00Z"`,
		`"next":"2026-01-05T10:05:00Z"`, `"kept":2`} {
		if !strings.Contains(want, part) {
			t.Errorf("undisturbed: no %q in\n%s", part, want)
		}
	}
	if strings.Contains(want, "-202601051002-") || strings.Contains(want, "pod ") || len(calm.made) != 5 {
		t.Errorf("undisturbed: something is left:\n%s\n%v", want, calm.made)
	}
	for at := 1; at <= calm.faults.Writes; at++ {
		for _, fault := range faults.Kinds {
			w := newWorld(t, backups(pairs))
			w.faults.At, w.faults.Kind = at, fault
			w.run(4)
			if diff := cmp.Diff(want, w.everything()); diff != "" {
				t.Errorf("write %d of %d, %s (-undisturbed +disturbed):\n%s", at, calm.faults.Writes, fault, diff)
			}
			for name, n := range w.made {
				if n != 1 {
					t.Errorf("write %d, %s: %s was made %d times", at, fault, name, n)
				}
			}
		}
	}
	t.Logf("%d writes", calm.faults.Writes)
}

// TestSays: what a schedule says when something is wrong, and that it goes on when it is not any more.
func TestSays(t *testing.T) {
	suspend := func(s *accessv1.MachineScheduleSpec) { s.Suspend = true }
	for name, row := range map[string]struct {
		change  func(*accessv1.MachineScheduleSpec)
		harm    func(*world)
		minutes int
		says    string
		made    int
	}{
		"well":              {nil, nil, 1, "True UpToDate: the last one is good: often-web-202601051001-", 1},
		"not yet":           {func(s *accessv1.MachineScheduleSpec) { s.Schedule = "0 2 * * *" }, nil, 1, "True WaitsForFirst: nothing was made yet: the next one is made at 2026-01-06 02:00 UTC", 0},
		"no schedule":       {func(s *accessv1.MachineScheduleSpec) { s.Schedule = "daily" }, nil, 1, `False Invalid: the schedule "daily" cannot be read`, 0},
		"no zone":           {func(s *accessv1.MachineScheduleSpec) { s.TimeZone = "Mars" }, nil, 1, `False Invalid: there is no time zone "Mars"`, 0},
		"no machine":        {func(s *accessv1.MachineScheduleSpec) { s.Machine = "db" }, nil, 1, "False MachineMissing: there is no VirtualMachine db", 0},
		"another namespace": {func(s *accessv1.MachineScheduleSpec) { s.Machine = "other/web" }, nil, 1, "False MachineMissing: there is no VirtualMachine other/web", 0},
		"nothing selected":  {selecting("tier", "back"), nil, 1, "False MachineMissing: there is no VirtualMachine with the labels", 0},
		"suspended":         {suspend, nil, 3, "True Suspended: suspended: nothing is made: there is none", 0},
		"it goes on":        {nil, func(w *world) { w.end = func(string) string { return "" } }, 1, "True InProgress: it is being made: often-web-202601051001", 1},
		"the one before":    {nil, func(w *world) { w.end = func(string) string { return "" } }, 2, "False PreviousNotEnded: the next one is due and waits, because the one before has not ended: often-web-202601051001", 1},
		"it failed":         {nil, func(w *world) { w.end = func(string) string { return "bad" } }, 1, "False LastFailed: the last one failed: often-web-202601051001-6733e6f174: bad; the next one is made at 2026-01-05 10:02 UTC", 1},
		"snapshot":          {snapshots, nil, 1, "True UpToDate", 1},
		"a snapshot failed": {snapshots, func(w *world) { w.end = func(string) string { return "no driver" } }, 1, "no driver; the next one", 1},
		"it was too late":   {deadline(30 * time.Second), func(w *world) { w.clock.SetTime(begin.Add(15 * time.Second)) }, 1, "True WaitsForFirst", 0},
		"it is in time":     {deadline(50 * time.Second), func(w *world) { w.clock.SetTime(begin.Add(15 * time.Second)) }, 1, "True UpToDate", 1},
		"only the last one": {nil, func(w *world) { w.clock.SetTime(begin.Add(20 * time.Minute)) }, 1, "often-web-202601051021-", 1},
		"the deadline is over": {func(s *accessv1.MachineScheduleSpec) {
			s.Schedule, s.StartingDeadline = "1 10 * * *", &metav1.Duration{Duration: time.Minute}
		},
			func(w *world) { w.clock.SetTime(begin.Add(5 * time.Minute)) }, 1, "True WaitsForFirst: nothing was made yet: the next one is made at 2026-01-06 10:01 UTC", 0},
		"too old": {suspend, func(w *world) {
			s := w.schedule()
			s.Spec.Suspend, s.Spec.StartingDeadline, s.Spec.Schedule = false, &metav1.Duration{Duration: 10 * time.Second}, "0 * * * *"
			w.must(w.api.Update(context.Background(), s))
			w.clock.SetTime(begin.Add(3 * time.Hour))
		}, 1, "False Overdue: the last good one is too old: there should have been another by 2026-01-05 12:00 UTC", 0},
	} {
		t.Run(name, func(t *testing.T) {
			changes := []func(*accessv1.MachineScheduleSpec){}
			if row.change != nil {
				changes = append(changes, row.change)
			}
			w := newWorld(t, backups(changes...))
			if row.harm != nil {
				row.harm(w)
			}
			s := w.run(row.minutes)
			if !strings.Contains(says(s), row.says) {
				t.Errorf("it says %s", says(s))
			}
			if got := len(w.backups()) + len(w.snapshots()); got != row.made {
				t.Errorf("%d were made, want %d", got, row.made)
			}
		})
	}
}

func selecting(key, value string) func(*accessv1.MachineScheduleSpec) {
	return func(s *accessv1.MachineScheduleSpec) {
		s.Machine, s.Selector = "", &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
}

func deadline(d time.Duration) func(*accessv1.MachineScheduleSpec) {
	return func(s *accessv1.MachineScheduleSpec) { s.StartingDeadline = &metav1.Duration{Duration: d} }
}

// TestSelector: each machine of the namespace that has the labels is backed up, one that is wrong does not keep the others, and the schedule says which it is.
func TestSelector(t *testing.T) {
	foreign := machineOf("foreign", map[string]string{"tier": "front"})
	foreign.Namespace = "other"
	w := newWorld(t, backups(selecting("tier", "front")), machineOf("db", map[string]string{"tier": "back"}), machineOf("api", map[string]string{"tier": "front"}), foreign)
	w.end = func(name string) string {
		return map[bool]string{true: "bad", false: "good"}[strings.Contains(name, "often-web")]
	}
	s := w.run(2)
	if got := says(s); !strings.Contains(got, "False LastFailed: 1 of 2 machines are up to date; web: the last one failed") {
		t.Errorf("it says %s", got)
	}
	for _, b := range w.backups() {
		if b.Namespace != namespace || !strings.HasPrefix(b.Name, "often-web-") && !strings.HasPrefix(b.Name, "often-api-") {
			t.Errorf("backup %s/%s was made", b.Namespace, b.Name)
		}
	}
	if len(s.Status.Machines) != 2 || s.Status.Machines[0].LastSuccess == nil || s.Status.Machines[1].LastFailure == nil || s.Status.LastSuccess == nil || s.Status.LastFailure == nil {
		t.Errorf("the status is %+v", s.Status)
	}
}

// TestStrangers: what a schedule did not make stays, whatever its name and labels; and it is not taken for something that the schedule made.
func TestStrangers(t *testing.T) {
	stranger := func(name string, schedule *accessv1.MachineSchedule) *backupv1.VirtualMachineBackup {
		b := &backupv1.VirtualMachineBackup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "stranger",
			Labels:          map[string]string{Label: string(schedule.UID), "app.kubernetes.io/part-of": "berth"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(schedule, accessv1.GroupVersion.WithKind("MachineSchedule"))}}}
		b.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: ptr.To("backup.kubevirt.io"), Kind: backupv1.Tracker, Name: trackerName(schedule, machineOf("web", nil))}
		b.Spec.PvcName = ptr.To("backups")
		b.Status = &backupv1.VirtualMachineBackupStatus{Type: backupv1.Full, CheckpointName: ptr.To("theirs"), Conditions: []metav1.Condition{{Type: "Complete", Status: metav1.ConditionTrue}}}
		return b
	}
	before := backups()
	before.UID = "an-earlier-schedule"
	earlier := stranger(runName(before, machineOf("web", nil), begin.Truncate(time.Minute)), backups())
	w := newWorld(t, backups(), stranger("precious", backups()), stranger("often-web-202601051000-0123456789", backups()), earlier)
	w.files["theirs"] = true
	s := w.run(9)
	var left []string
	for _, b := range w.backups() {
		if b.UID == "stranger" {
			left = append(left, b.Name)
		}
	}
	if len(left) != 3 || !w.files["theirs"] || s.Status.Machines[0].Kept > 4 {
		t.Errorf("left %v, files %v, kept %d", left, w.files, s.Status.Machines[0].Kept)
	}
}

// TestNameTaken: what has the name that is needed is left alone, and the schedule says which.
func TestNameTaken(t *testing.T) {
	vm := machineOf("web", nil)
	taken := &backupv1.VirtualMachineBackup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: runName(backups(), vm, begin.Truncate(time.Minute).Add(time.Minute)), UID: "x"}}
	taken.Spec.Source = corev1.TypedLocalObjectReference{Kind: backupv1.Machine, Name: "web"}
	w := newWorld(t, backups(), taken)
	if got := says(w.run(1)); !strings.Contains(got, "False NameTaken: nothing is made, because VirtualMachineBackup "+taken.Name+" exists") {
		t.Errorf("it says %s", got)
	}
	tracker := &backupv1.VirtualMachineBackupTracker{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: trackerName(backups(), vm), UID: "x"}}
	tracker.Spec.Source.Name = "db"
	w = newWorld(t, backups(), tracker)
	if got := says(w.run(1)); !strings.Contains(got, "NameTaken: nothing is made, because VirtualMachineBackupTracker") || len(w.backups()) > 0 {
		t.Errorf("it says %s", got)
	}
}

// TestDeletedRun: what a user deletes is not made again.
func TestDeletedRun(t *testing.T) {
	w := newWorld(t, backups())
	w.run(1)
	b := w.backups()[0]
	w.must(w.api.Delete(context.Background(), &b))
	w.settle()
	if len(w.backups()) > 0 {
		t.Errorf("it was made again: %s", w.everything())
	}
}

// TestSnapshotsAreKept: old snapshots are deleted, and the last good one never is.
func TestSnapshotsAreKept(t *testing.T) {
	w := newWorld(t, backups(snapshots))
	w.run(5)
	if all := w.snapshots(); len(all) != 2 {
		t.Errorf("%d are left", len(all))
	}
	w.end = func(string) string { return "bad" }
	s := w.run(9)
	good := slices.DeleteFunc(w.snapshots(), func(v snapshotv1.VirtualMachineSnapshot) bool { return v.Status.Phase != snapshotv1.Succeeded })
	if all := w.snapshots(); len(good) != 2 || len(all) != 5 || s.Status.Machines[0].LastFailure == nil {
		t.Errorf("%d good ones are left of %d: %+v", len(good), len(all), s.Status)
	}
}

// TestRemoval: a worker that is killed is made again; one that is refused says why and is made again later; without the claim there is nothing to remove.
func TestRemoval(t *testing.T) {
	w := newWorld(t, backups())
	w.kills = 2
	if s := w.run(7); s.Status.Machines[0].Kept != 4 || len(w.files) != 4 {
		t.Errorf("killed: kept %d, files %v", s.Status.Machines[0].Kept, w.files)
	}
	w = newWorld(t, backups())
	w.worker = func(task.RemoveBackups) *task.Report {
		return &task.Report{Version: task.Version, Outcome: task.Fatal, Reason: task.BadTask, Detail: "backup theirs lies over backup x"}
	}
	s := w.run(6)
	if got := s.Status.Machines[0]; got.Kept != 6 || !strings.Contains(got.Removal, "old backups were not removed, which is tried again: backup theirs lies over backup x") {
		t.Errorf("refused: %+v", got)
	}
	w.worker = nil
	if s = w.run(12); s.Status.Machines[0].Kept > 6 || s.Status.Machines[0].Removal != "" {
		t.Errorf("it is not tried again: %+v", s.Status.Machines[0])
	}
	w = newWorld(t, backups())
	w.must(w.api.Delete(context.Background(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "backups"}}))
	if s = w.run(7); s.Status.Machines[0].Kept != 4 {
		t.Errorf("no claim: %+v", s.Status.Machines[0])
	}
}

// TestMachineIsMadeAgain: a machine of the same name is another machine: it has a tracker and backups of its own, and those of the earlier one stay.
func TestMachineIsMadeAgain(t *testing.T) {
	w := newWorld(t, backups())
	w.run(4)
	vm := machineOf("web", nil)
	w.must(w.api.Delete(context.Background(), vm))
	vm.UID, vm.CreationTimestamp = "again", metav1.NewTime(w.clock.Now())
	w.must(w.api.Create(context.Background(), vm))
	s := w.run(8)
	sources := map[string]int{}
	for _, b := range w.backups() {
		sources[b.Spec.Source.Name]++
	}
	if len(sources) != 2 || sources[trackerName(backups(), machineOf("web", nil))] != 4 || s.Status.Machines[0].UID != "again" {
		t.Errorf("%v, %+v", sources, s.Status)
	}
}

// TestForgedWorker: a pod that a user made in the place of the worker has no backup deleted that the schedule did not make.
func TestForgedWorker(t *testing.T) {
	s := backups()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: removalName(s, machineOf("web", nil)), UID: "forged",
		Annotations:     map[string]string{"berth.dev/task": `{"checkpoints":["theirs"]}`},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, accessv1.GroupVersion.WithKind("MachineSchedule"))}}}
	p.Status.Phase = corev1.PodSucceeded
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Message: fmt.Sprintf(`{"version":%d,"outcome":"Done","reason":"Completed"}`, task.Version)}}}}
	theirs := &backupv1.VirtualMachineBackup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs", UID: "x"}}
	theirs.Status = &backupv1.VirtualMachineBackupStatus{CheckpointName: ptr.To("theirs"), Conditions: []metav1.Condition{{Type: "Complete", Status: metav1.ConditionTrue}}}
	w := newWorld(t, s, p, theirs)
	w.run(2)
	if err := w.api.Get(context.Background(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Errorf("it was deleted: %v", err)
	}
}
