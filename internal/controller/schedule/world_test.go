package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	clocktest "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/faults"
	"github.com/berth-vm/berth/internal/testing/kinds"
)

const namespace = "team"

// begin is the creation of everything; schedules of the tests come every minute.
var begin = time.Date(2026, 1, 5, 10, 0, 30, 0, time.UTC)

// world is a namespace with a machine, a claim for backups and a schedule. What other controllers do with backups, snapshots and pods is simulated here.
type world struct {
	t      *testing.T
	api    client.Client
	r      *Reconciler
	clock  *clocktest.FakePassiveClock
	faults faults.Injector
	// files are the checkpoints in the claim.
	files map[string]bool
	// made counts what was ever made, by moment and machine.
	made map[string]int
	// end is how a backup or snapshot ends; "": it goes on.
	end func(name string) string
	// worker is what a worker leaves that removes files; nil: it removes them.
	worker func(task.RemoveBackups) *task.Report
	kills  int // of workers
}

func machineOf(name string, labels map[string]string) *kubevirt.VirtualMachine {
	return &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Labels: labels, CreationTimestamp: metav1.NewTime(begin)}}
}

func backups(changes ...func(*accessv1.MachineScheduleSpec)) *accessv1.MachineSchedule {
	s := &accessv1.MachineSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "often", UID: "schedule", CreationTimestamp: metav1.NewTime(begin)}}
	s.Spec = accessv1.MachineScheduleSpec{Machine: "web", Schedule: "* * * * *", Backup: &accessv1.ScheduledBackup{PvcName: "backups", Increments: ptr.To[int32](2)},
		Keep: &accessv1.ScheduleKeep{Last: 2}}
	for _, change := range changes {
		change(&s.Spec)
	}
	return s
}

func snapshots(s *accessv1.MachineScheduleSpec) {
	s.Backup, s.Snapshot = nil, &accessv1.ScheduledSnapshot{}
}

func newWorld(t *testing.T, of *accessv1.MachineSchedule, more ...client.Object) *world {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kinds.AddToScheme, cdiv1.AddToScheme, kubevirt.AddToScheme, backupv1.AddToScheme, accessv1.AddToScheme, snapshotv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, clock: clocktest.NewFakePassiveClock(begin), files: map[string]bool{}, made: map[string]int{}, end: func(string) string { return "good" }}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "backups", UID: "claim"}}
	c.Status.Phase = corev1.ClaimBound
	b := fake.NewClientBuilder().WithScheme(s).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&accessv1.MachineSchedule{}, &backupv1.VirtualMachineBackup{}, &snapshotv1.VirtualMachineSnapshot{}, &corev1.Pod{}).
		WithObjects(of, machineOf("web", map[string]string{"tier": "front"}), c).WithObjects(more...)
	for _, i := range cacheindex.All() {
		b = b.WithIndex(i.Object, i.Field, i.Of)
	}
	base := b.Build()
	w.api = base
	w.r = &Reconciler{reader: base, live: base, clock: w.clock, settings: config.NewReader(base), image: "worker",
		cluster: cluster.New(w.faults.Client(base, w.admit), events.NewFakeRecorder(10000), w.clock)}
	w.r.records = diskaccess.New(base, base, w.r.cluster)
	return w
}

func (w *world) admit(obj client.Object) error {
	obj.SetUID(types.UID("made-" + obj.GetName()))
	obj.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
	if _, pod := obj.(*corev1.Pod); !pod {
		w.made[obj.GetName()]++
	}
	return nil
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// run lets minutes pass, one after the other, and returns the schedule.
func (w *world) run(minutes int) *accessv1.MachineSchedule {
	w.t.Helper()
	for range minutes {
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
		w.settle()
	}
	return w.schedule()
}

func (w *world) schedule() *accessv1.MachineSchedule {
	w.t.Helper()
	s, err := cluster.Get[accessv1.MachineSchedule](context.Background(), w.api, namespace, "often")
	w.must(err)
	return s
}

// settle reconciles until nothing changes any more.
func (w *world) settle() {
	w.t.Helper()
	last := ""
	for calm, turns := 0, 0; calm < 3; turns++ {
		if turns > 100 {
			w.t.Fatalf("the loop never came to rest: %s", last)
		}
		_, err := w.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "often"}})
		if err != nil && !faults.Caused(err) {
			w.t.Fatalf("reconcile: %v", err)
		}
		w.others()
		if now := w.everything(); now == last && err == nil {
			calm++
		} else {
			calm, last = 0, now
		}
	}
}

// others is what the controllers of backups and snapshots do, and the kubelet.
func (w *world) others() {
	ctx := context.Background()
	for _, b := range w.backups() {
		if b.Over() || w.end(b.Name) == "" {
			continue
		}
		kind := map[string]string{"good": backupv1.ConditionComplete, "bad": backupv1.ConditionFailed}[w.end(b.Name)]
		b.Status = &backupv1.VirtualMachineBackupStatus{Type: backupv1.Incremental, Conditions: []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Message: w.end(b.Name)}}}
		if first := len(w.files) == 0; b.Spec.ForceFullBackup || first {
			b.Status.Type = backupv1.Full
		}
		if kind == backupv1.ConditionComplete {
			b.Status.CheckpointName = ptr.To("of-" + b.Name)
			w.files["of-"+b.Name] = true
		}
		w.must(w.api.Status().Update(ctx, &b))
	}
	for _, v := range w.snapshots() {
		switch end := w.end(v.Name); {
		case v.Status.Phase != "" || end == "":
			continue
		case end == "good":
			v.Status = snapshotv1.VirtualMachineSnapshotStatus{Phase: snapshotv1.Succeeded, ReadyToUse: ptr.To(true)}
		default:
			v.Status = snapshotv1.VirtualMachineSnapshotStatus{Phase: snapshotv1.Failed, Error: &snapshotv1.Error{Message: &end}}
		}
		w.must(w.api.Status().Update(ctx, &v))
	}
	w.kubelet()
}

// kubelet runs workers, and ends those that are deleted.
func (w *world) kubelet() {
	var all corev1.PodList
	w.must(w.api.List(context.Background(), &all))
	for i := range all.Items {
		p := &all.Items[i]
		switch {
		case p.DeletionTimestamp != nil:
			w.must(w.r.records.ReleaseEnded(context.Background(), p, func() error {
				p.Finalizers = nil
				return client.IgnoreNotFound(w.api.Update(context.Background(), p))
			}))
			continue
		case len(p.Spec.SchedulingGates) > 0 || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
			continue
		case w.kills > 0:
			w.kills--
			p.Status.Phase = corev1.PodFailed
		default:
			w.work(p)
		}
		w.must(w.api.Status().Update(context.Background(), p))
	}
}

// work is what a worker does.
func (w *world) work(p *corev1.Pod) {
	var t task.RemoveBackups
	w.must(json.Unmarshal([]byte(p.Annotations[render.AnnTask]), &t))
	report := &task.Report{Version: task.Version, Outcome: task.Done, Reason: task.Completed}
	if w.worker != nil {
		report = w.worker(t)
	} else {
		for _, c := range t.Checkpoints {
			delete(w.files, c)
		}
	}
	text, err := json.Marshal(report)
	w.must(err)
	p.Status.Phase = map[bool]corev1.PodPhase{true: corev1.PodSucceeded, false: corev1.PodFailed}[report.Outcome == task.Done]
	ended := &corev1.ContainerStateTerminated{Message: string(text), FinishedAt: metav1.NewTime(w.clock.Now())}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: ended}}}
}

func (w *world) backups() []backupv1.VirtualMachineBackup {
	var all backupv1.VirtualMachineBackupList
	w.must(w.api.List(context.Background(), &all))
	return all.Items
}

func (w *world) snapshots() []snapshotv1.VirtualMachineSnapshot {
	var all snapshotv1.VirtualMachineSnapshotList
	w.must(w.api.List(context.Background(), &all))
	return all.Items
}

// everything is what there is, to see whether it changes.
func (w *world) everything() string {
	var pods corev1.PodList
	var trackers backupv1.VirtualMachineBackupTrackerList
	w.must(w.api.List(context.Background(), &pods))
	w.must(w.api.List(context.Background(), &trackers))
	out := []string{}
	for _, b := range w.backups() {
		kind := backupv1.BackupType("")
		if b.Status != nil {
			kind = b.Status.Type
		}
		out = append(out, fmt.Sprintf("%s %s %s over=%t", b.Name, b.Spec.Source.Name, kind, b.Over()))
	}
	for _, v := range w.snapshots() {
		out = append(out, fmt.Sprintf("%s %s %s", v.Name, v.Spec.Source.Name, v.Status.Phase))
	}
	for _, t := range trackers.Items {
		out = append(out, "tracker "+t.Name+" of "+t.Spec.Source.Name)
	}
	for _, p := range pods.Items {
		out = append(out, fmt.Sprintf("pod %s %s gates=%d going=%t", p.Name, p.Status.Phase, len(p.Spec.SchedulingGates), p.DeletionTimestamp != nil))
	}
	status, err := json.Marshal(w.schedule().Status)
	w.must(err)
	out = append(out, "files "+strings.Join(slices.Sorted(maps.Keys(w.files)), " "), string(status), w.schedule().Annotations[annBegun])
	return strings.Join(out, "\n")
}

// says is the message of the condition UpToDate, and whether it is true.
func says(s *accessv1.MachineSchedule) string {
	for _, c := range s.Status.Conditions {
		if c.Type == accessv1.ScheduleUpToDate {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return "nothing"
}
