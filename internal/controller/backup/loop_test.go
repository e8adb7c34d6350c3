package backup

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

	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// outcome is what there is after a full backup and an increment of a tracker.
func outcome(w *world) string {
	first := w.run(of("one", backupv1.Tracker))
	second := w.run(of("two", backupv1.Tracker))
	t := w.tracked()
	return fmt.Sprintf("%s %s %s\n%s%s %s\n%s%s %s\n%v %v %v", first.Status.Type, *first.Status.CheckpointName, first.Finalizers, conditions(first), second.Status.Type,
		*second.Status.CheckpointName, conditions(second), t.Latest(), t.Annotations[annCheckpoint], w.launcher.holds, w.launcher.recorded, w.left())
}

// TestCrashes: whatever write is refused, or is the controller's last, the backups end in the same place, and the launcher holds nothing.
func TestCrashes(t *testing.T) {
	calm := newWorld(t)
	want := outcome(calm)
	for _, part := range []string{"Full one-one00000 []", "Incremental two-two00000", `two-two00000 {"name":"two-two00000","claim":"claim-backups","machine":"machine"`,
		" [two-two00000] []", "Complete=True CompletedWithWarning: the backup is complete: what changed since the backup before; 7 bytes were written for disks of 1073741824 bytes",
		"because it is the first backup of tracker daily", "Quiesced=False QuiesceFailed", "Progressing=False"} {
		if !strings.Contains(want, part) {
			t.Errorf("undisturbed: no %q in\n%s", part, want)
		}
	}
	for at := 1; at <= calm.faults.Writes; at++ {
		for _, fault := range faults.Kinds {
			w := newWorld(t)
			w.faults.At, w.faults.Kind = at, fault
			if diff := cmp.Diff(want, outcome(w)); diff != "" {
				t.Errorf("write %d of %d, %s (-undisturbed +disturbed):\n%s", at, calm.faults.Writes, fault, diff)
			}
		}
	}
	t.Logf("%d writes", calm.faults.Writes)
}

// TestWorkerIsKilled: one that ends without a word is made again, and reads the same moment.
func TestWorkerIsKilled(t *testing.T) {
	w := newWorld(t)
	w.kills = 3
	b := w.run(of("one", backupv1.Tracker))
	if !b.Over() || b.Condition("Complete") == nil || w.launcher.moments != 1 {
		t.Errorf("%d moments, %s", w.launcher.moments, conditions(b))
	}
}

// TestFailures: what goes wrong ends the backup with a sentence, the launcher is told, changes are recorded since the checkpoint before, and the next
// backup is an increment of that.
func TestFailures(t *testing.T) {
	failing := func(reason task.Reason, detail string) func(*world) {
		return func(w *world) {
			w.worker = func(task.BackUp) *task.Report {
				return &task.Report{Version: task.Version, Outcome: reason.Outcome(), Reason: reason, Detail: detail}
			}
		}
	}
	for name, row := range map[string]struct {
		harm   func(*world)
		reason string
		says   string
	}{
		"target full": {failing(task.DoesNotFit, "the place for backups is full"), "Failed", "the backup failed: the place for backups is full; backups before it"},
		"scratch full": {func(w *world) {
			failing(task.SourceUnavailable, "read disk root of the guest at byte 0: error 22")(w)
			w.launcher.broken = "the guest overwrote more of disk root than the node has room for"
		}, "Failed", "the backup failed: the guest overwrote more of disk root"},
		"refused": {func(w *world) { w.launcher.refuses = "the node has no room" }, "Failed", "the backup failed: the node has no room"},
		"late": {func(w *world) {
			w.worker = func(task.BackUp) *task.Report { return nil }
			w.r.live, w.r.reader = stuck{w.api, w}, stuck{w.api, w}
		}, "Failed", "its worker did not start for ten minutes"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			good := w.worker
			w.run(of("one", backupv1.Tracker))
			row.harm(w)
			b := w.run(of("two", backupv1.Tracker))
			c := b.Condition("Failed")
			if c == nil || c.Reason != row.reason || !strings.Contains(c.Message, row.says) {
				t.Errorf("it says %s", conditions(b))
			}
			if w.launcher.holds != "" || !slices.Equal(w.launcher.recorded, []string{"one-one00000"}) || w.tracked().Latest() != "one-one00000" || len(w.left()) > 0 {
				t.Errorf("left: %+v, %s, %v", w.launcher, w.tracked().Latest(), w.left())
			}
			w.worker, w.launcher.refuses, w.launcher.broken, w.r.live, w.r.reader = good, "", "", w.api, w.api
			if b = w.run(of("three", backupv1.Tracker)); b.Status.Type != backupv1.Incremental {
				t.Errorf("the next one is %s: %s", b.Status.Type, conditions(b))
			}
		})
	}
}

// stuck shows workers that have been waiting to start for long.
type stuck struct {
	client.Client
	w *world
}

func (s stuck) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := s.Client.Get(ctx, key, obj, opts...)
	if p, ok := obj.(*corev1.Pod); ok && p.Labels[render.LabelComponent] == render.RoleBackup {
		p.Status.Phase = corev1.PodPending
		p.CreationTimestamp = metav1.NewTime(s.w.clock.Now().Add(-time.Hour))
	}
	return err
}

// TestSourceIsLost: a guest that stops or moves away while it is backed up ends the backup; one whose backup is written is complete all the same.
func TestSourceIsLost(t *testing.T) {
	for name, gone := range map[string]func(*world){
		"stopped": func(w *world) {
			i := instance()
			w.must(w.api.Get(context.Background(), client.ObjectKeyFromObject(i), i))
			i.Status.Phase = kubevirt.PhaseSucceeded
			w.must(w.api.Update(context.Background(), i))
		},
		"launcher gone": func(w *world) { w.must(w.api.Delete(context.Background(), launcherPod(instance()))) },
		"another launcher": func(w *world) {
			p := launcherPod(instance())
			w.must(w.api.Delete(context.Background(), p))
			p.UID = "other"
			w.must(w.api.Create(context.Background(), p))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			good := w.worker
			w.worker = func(task.BackUp) *task.Report { return nil }
			b := w.run(of("one", backupv1.Tracker))
			if c := b.Condition("Progressing"); c == nil || c.Reason != "Initiated" || !strings.Contains(c.Message, "the backup is being written: 5 MiB were read") {
				t.Fatalf("it says %s", conditions(b))
			}
			gone(w)
			b = w.run(b)
			if c := b.Condition("Failed"); c == nil || c.Reason != "SourceLost" || len(w.left()) > 0 {
				t.Errorf("it says %s, left %v", conditions(b), w.left())
			}
			w = newWorld(t)
			w.worker = func(b task.BackUp) *task.Report {
				gone(w)
				return good(b)
			}
			if b = w.run(of("one", backupv1.Tracker)); b.Condition("Complete") == nil || name != "stopped" && w.tracked().Latest() == "" {
				t.Errorf("it was written: %s", conditions(b))
			}
		})
	}
}

// TestWaits: what cannot begin says why, nothing is held, and it begins when it can.
func TestWaits(t *testing.T) {
	ctx := context.Background()
	for name, row := range map[string]struct {
		before, after func(*world)
		change        func(*backupv1.VirtualMachineBackup)
		says          string
	}{
		"no claim": {func(w *world) { w.must(w.api.Delete(ctx, claim("backups"))) }, func(w *world) { w.must(w.api.Create(ctx, claim("backups"))) }, nil,
			"there is no PersistentVolumeClaim backups"},
		"no tracker": {func(w *world) { w.must(w.api.Delete(ctx, w.tracked())) }, func(w *world) {
			t := &backupv1.VirtualMachineBackupTracker{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "daily", UID: "again"}}
			t.Spec.Source.Name = "web"
			w.must(w.api.Create(ctx, t))
		}, nil, "there is no VirtualMachineBackupTracker daily"},
		"no machine": {func(w *world) {
			w.must(w.api.Delete(ctx, &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}))
		}, func(w *world) {
			vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "again"}}
			vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: spec()}
			w.must(w.api.Create(ctx, vm))
		}, nil, "there is no VirtualMachine web"},
		"starting": {func(w *world) { w.must(w.api.Delete(ctx, launcherPod(instance()))) }, func(w *world) { w.must(w.api.Create(ctx, launcherPod(instance()))) }, nil,
			"waiting until the guest runs"},
		"moving": {func(w *world) { w.launcher.later = "the guest moves" }, func(w *world) { w.launcher.later = "" }, nil, "waiting until the guest runs and stays where it is: the guest moves"},
		"another backup": {func(w *world) {
			w.must(w.api.Create(ctx, of("zero", backupv1.Machine)))
			w.launcher.holds = "zero0000000"
		}, func(w *world) { w.launcher.holds = "" }, nil, "waiting for backup zero"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			row.before(w)
			b := w.run(of("one", backupv1.Tracker))
			if c := b.Condition("Progressing"); c == nil || c.Reason != "Initializing" || !strings.Contains(c.Message, row.says) || w.launcher.moments > 0 {
				t.Fatalf("it says %s", conditions(b))
			}
			row.after(w)
			if b = w.run(b); b.Condition("Complete") == nil || b.Condition("Progressing").Status == metav1.ConditionTrue {
				t.Errorf("it does not begin: %s", conditions(b))
			}
		})
	}
}

// TestNever: what never can be says so at once.
func TestNever(t *testing.T) {
	block := claim("device")
	block.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	reads := claim("reads")
	reads.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	into := func(name string) func(*backupv1.VirtualMachineBackup) {
		return func(b *backupv1.VirtualMachineBackup) { b.Spec.PvcName = &name }
	}
	for name, row := range map[string]struct {
		change func(*backupv1.VirtualMachineBackup)
		says   string
	}{
		"block": {into("device"), "backups cannot be written into PersistentVolumeClaim device"}, "read-only": {into("reads"), "backups cannot be written into"},
	} {
		w := newWorld(t, block.DeepCopy(), reads.DeepCopy())
		b := w.run(of("one", backupv1.Machine, row.change))
		if c := b.Condition("Failed"); c == nil || !strings.Contains(c.Message, row.says) || len(w.launcher.orders) > 0 {
			t.Errorf("%s: %s", name, conditions(b))
		}
	}
}

// TestForgottenMoment: a launcher that holds disks for a backup that is gone is told to give them up.
func TestForgottenMoment(t *testing.T) {
	w := newWorld(t)
	w.launcher.holds = "gone"
	if b := w.run(of("one", backupv1.Machine)); b.Condition("Complete") == nil {
		t.Errorf("it says %s", conditions(b))
	}
}

// TestDeleted: a backup that is deleted while it goes on leaves nothing behind, and the checkpoint before counts.
func TestDeleted(t *testing.T) {
	w := newWorld(t)
	w.run(of("one", backupv1.Tracker))
	w.worker = func(task.BackUp) *task.Report { return nil }
	b := w.run(of("two", backupv1.Tracker))
	if w.launcher.holds == "" {
		t.Fatalf("nothing is held: %s", conditions(b))
	}
	w.must(w.api.Delete(context.Background(), b))
	if b = w.run(b); b != nil || w.launcher.holds != "" || !slices.Equal(w.launcher.recorded, []string{"one-one00000"}) || len(w.left()) > 0 {
		t.Errorf("it is %v, held for %q, recorded %v, left %v", b, w.launcher.holds, w.launcher.recorded, w.left())
	}
}

// TestFullWhy: a backup of a tracker that has all data says why.
func TestFullWhy(t *testing.T) {
	for name, row := range map[string]struct {
		harm   func(*world)
		change func(*backupv1.VirtualMachineBackup)
		says   string
	}{
		"forced":      {nil, func(b *backupv1.VirtualMachineBackup) { b.Spec.ForceFullBackup = true }, "because forceFullBackup is set"},
		"other claim": {nil, func(b *backupv1.VirtualMachineBackup) { b.Spec.PvcName = ptr.To("other") }, "because the last backup of tracker daily is in another claim"},
		"other machine": {func(w *world) {
			t := w.tracked()
			t.Annotations[annCheckpoint] = strings.ReplaceAll(t.Annotations[annCheckpoint], `"machine":"machine"`, `"machine":"before"`)
			w.must(w.api.Update(context.Background(), t))
		}, nil, "because the last backup of tracker daily is of an earlier machine"},
		"shared disk": {func(w *world) {
			i := instance()
			w.must(w.api.Get(context.Background(), client.ObjectKeyFromObject(i), i))
			i.Spec.Domain.Devices.Disks[0].Shareable = ptr.To(true)
			w.must(w.api.Update(context.Background(), i))
		}, nil, "because disk root is shareable"},
	} {
		w := newWorld(t, claim("other"))
		w.run(of("one", backupv1.Tracker))
		if row.harm != nil {
			row.harm(w)
		}
		change := row.change
		if change == nil {
			change = func(*backupv1.VirtualMachineBackup) {}
		}
		b := w.run(of("two", backupv1.Tracker, change))
		if b.Status.Type != backupv1.Full || !strings.Contains(conditions(b), row.says) {
			t.Errorf("%s: %s %s", name, b.Status.Type, conditions(b))
		}
	}
}

// TestCompared: if the launcher has no record of what changed, the worker is told to compare with the last backup, and the backup says why.
func TestCompared(t *testing.T) {
	for name, harm := range map[string]func(*world){
		"the guest started again": func(w *world) { w.launcher.recorded = nil },
		"forged": func(w *world) { // the worker finds no such backup, and writes all data
			t := w.tracked()
			t.Annotations[annCheckpoint] = `{"name":"forged","claim":"claim-backups","machine":"machine"}`
			w.must(w.api.Update(context.Background(), t))
		},
	} {
		w := newWorld(t)
		var tasks []task.BackUp
		w.notes(&tasks)
		w.run(of("one", backupv1.Tracker))
		parent := w.tracked().Latest()
		harm(w)
		b := w.run(of("two", backupv1.Tracker))
		if name == "forged" {
			parent = "forged"
		}
		last := tasks[len(tasks)-1]
		if !last.Compare || last.Bitmap != "" || last.Parent != parent || last.Full != "" || last.Address == "" ||
			b.Status.Type != backupv1.Incremental || !strings.Contains(conditions(b), "all was compared with it, because nothing recorded what changed") {
			t.Errorf("%s: %+v\n%s", name, last, conditions(b))
		}
	}
}

// TestOrder: what the launcher is told, and that the worker has the keys that it lets in.
func TestOrder(t *testing.T) {
	limited := launcherPod(instance())
	limited.Name += "-x"
	w := newWorld(t)
	keys := ""
	good := w.worker
	w.worker = func(b task.BackUp) *task.Report {
		s, err := cluster.Get[corev1.Secret](context.Background(), w.api, namespace, "backup-one0000000-tls")
		if err != nil || s == nil {
			t.Fatalf("the worker has no keys: %v", err)
		}
		keys = string(s.Data["ca.crt"])
		if b.Address != "10.0.0.7:8083" || b.Server != launcherapi.BackupServer || b.Set != "/data/web" || !slices.Equal(b.Disks, []string{"root"}) ||
			!strings.Contains(string(b.Object), `"kind":"VirtualMachine"`) || b.Moment == "" {
			t.Errorf("the task is %+v", b)
		}
		return good(b)
	}
	w.run(of("one", backupv1.Machine, func(b *backupv1.VirtualMachineBackup) { b.Spec.SkipQuiesce = true }))
	o := w.launcher.orders[0]
	if o.Tracker != "" || o.Quiesce || !slices.Equal(o.Volumes, []string{"root"}) || keys == "" || keys != w.launcher.keys {
		t.Errorf("the order is %+v", o)
	}
}

// TestLaunchersWord: what a launcher answers that a guest broke into names no file, and fills no object.
func TestLaunchersWord(t *testing.T) {
	disks := func(names ...string) (out []launcherapi.BackupDisk) {
		for _, n := range names {
			out = append(out, launcherapi.BackupDisk{Volume: n})
		}
		return out
	}
	s := &seen{volumes: []string{"root"}}
	long := strings.Repeat("x", 200<<10)
	for name, m := range map[string]launcherapi.BackupMoment{
		"another path": {Moment: "m", Port: 1, Disks: disks("../../root")}, "more disks": {Moment: "m", Port: 1, Disks: disks("root", "root")}, "no disks": {Moment: "m", Port: 1},
		"no port": {Moment: "m", Disks: disks("root")}, "no such port": {Moment: "m", Port: 1 << 16, Disks: disks("root")}, "long": {Moment: long, Port: 1, Disks: disks("root")},
		"long target": {Moment: "m", Port: 1, Disks: []launcherapi.BackupDisk{{Volume: "root", Target: long}}},
	} {
		if _, err := s.believed(m); err == nil {
			t.Errorf("%s: it is believed", name)
		}
	}
	m, err := s.believed(launcherapi.BackupMoment{Moment: "m", Port: 1, Disks: disks("root"), Full: long, Unquiesced: long})
	if err != nil || len(m.Full) > mostWords || len(m.Unquiesced) > mostWords {
		t.Errorf("%v: %d %d", err, len(m.Full), len(m.Unquiesced))
	}
}

// TestBackedUp: which volumes are in a backup.
func TestBackedUp(t *testing.T) {
	s := spec()
	add := func(name string, v kubevirt.VolumeSource, d kubevirt.DiskDevice) {
		s.Volumes = append(s.Volumes, kubevirt.Volume{Name: name, VolumeSource: v})
		s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirt.Disk{Name: name, DiskDevice: d})
	}
	in := func(claim string) kubevirt.VolumeSource {
		return kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: claim}}
	}
	add("data", kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "data"}}, kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{}})
	add("lun", in("lun"), kubevirt.DiskDevice{LUN: &kubevirt.LunTarget{}})
	add("cd", in("cd"), kubevirt.DiskDevice{CDRom: &kubevirt.CDRomTarget{}})
	add("read", kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "read", ReadOnly: true}}, kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{}})
	add("copy", kubevirt.VolumeSource{Ephemeral: &kubevirt.EphemeralSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "master"}}}, kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{}})
	s.Volumes = append(s.Volumes, kubevirt.Volume{Name: "bare", VolumeSource: in("bare")}) // gets a disk by itself
	if got, shared := backedUp(&s); !slices.Equal(got, []string{"root", "data", "bare"}) || shared != "" {
		t.Errorf("%v, shared %q", got, shared)
	}
}
