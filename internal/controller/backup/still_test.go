package backup

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// stopped is a world whose machine does not run.
func stopped(t *testing.T, more ...client.Object) *world {
	t.Helper()
	root := claim("root")
	root.Spec.VolumeName = "volume"
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume", UID: "volume"}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: "root", UID: root.UID}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "one"}
	w := newWorld(t, append(more, root, pv)...)
	w.stop()
	return w
}

func (w *world) stop() {
	w.must(w.api.Delete(context.Background(), launcherPod(instance())))
	w.must(w.api.Delete(context.Background(), instance()))
}

func (w *world) start() {
	i := instance()
	w.must(w.api.Create(context.Background(), i))
	w.must(w.api.Create(context.Background(), launcherPod(i)))
}

// notes keeps what workers are told.
func (w *world) notes(tasks *[]task.BackUp) {
	good := w.worker
	w.worker = func(b task.BackUp) *task.Report {
		*tasks = append(*tasks, b)
		return good(b)
	}
}

// outcomeStopped is what there is after two backups of a machine that does not run, and what the workers were told.
func outcomeStopped(w *world) string {
	var tasks []task.BackUp
	w.notes(&tasks)
	first, second := w.run(of("one", backupv1.Tracker)), w.run(of("two", backupv1.Tracker))
	out := ""
	for _, b := range []*backupv1.VirtualMachineBackup{first, second} {
		out += fmt.Sprintf("%s %s %s\n%s", b.Status.Type, *b.Status.CheckpointName, b.Finalizers, conditions(b))
	}
	last := tasks[len(tasks)-1]
	return fmt.Sprintf("%s%s %s %d\n%v %s %s %s %s %s", out, w.tracked().Latest(), w.tracked().Annotations[annCheckpoint], len(w.launcher.orders), w.left(), last.Address,
		last.Files, last.Disks, last.Parent, last.Proof)
}

// TestStopped: a machine that does not run is backed up from its claims, as a whole and then what changed, whatever write is refused or is the
// controller's last. No launcher is asked, and nothing is left.
func TestStopped(t *testing.T) {
	calm := stopped(t)
	want := outcomeStopped(calm)
	for _, part := range []string{"Full one-one00000 []\nComplete=True Completed: the backup is complete: all data, because it is the first backup of tracker daily",
		"Incremental two-two00000 []\nComplete=True Completed: the backup is complete: what differs from the backup before; 7 bytes",
		"Quiesced=True QuiesceSucceeded: the machine did not run", `"manifest":"sha256:of-two-two00000","since":"one-one00000"} 0`,
		"\n[]  map[root:/volumes/0/disk.img] [root] one-one00000 sha256:of-one-one00000"} {
		if !strings.Contains(want, part) {
			t.Errorf("undisturbed: no %q in\n%s", part, want)
		}
	}
	for at := 1; at <= calm.faults.Writes; at++ {
		for _, fault := range faults.Kinds {
			w := stopped(t)
			w.faults.At, w.faults.Kind = at, fault
			if diff := cmp.Diff(want, outcomeStopped(w)); diff != "" {
				t.Errorf("write %d of %d, %s (-undisturbed +disturbed):\n%s", at, calm.faults.Writes, fault, diff)
			}
		}
	}
}

// TestStoppedInBetween: of a machine that ran, stopped and runs again, the launcher is asked for what changed since its own last checkpoint, which is
// more than changed since the backup of the claims; and that backup is the parent.
func TestStoppedInBetween(t *testing.T) {
	root := claim("root")
	w := newWorld(t, root)
	var tasks []task.BackUp
	w.notes(&tasks)
	w.run(of("one", backupv1.Tracker))
	w.stop()
	for _, name := range []string{"two", "three"} {
		if b := w.run(of(name, backupv1.Tracker)); b.Status.Type != backupv1.Incremental {
			t.Fatalf("%s is %s", name, conditions(b))
		}
	}
	w.start()
	b := w.run(of("four", backupv1.Tracker))
	if b.Status.Type != backupv1.Incremental {
		t.Fatalf("it is %s: %s", b.Status.Type, conditions(b))
	}
	last := tasks[len(tasks)-1]
	since := w.launcher.orders[len(w.launcher.orders)-2].Since
	if since != "one-one00000" || last.Parent != "three-three000" || last.Bitmap == "" || len(last.Files) > 0 || strings.Contains(w.tracked().Annotations[annCheckpoint], "since") {
		t.Errorf("the launcher was asked since %q, the worker told %+v; recorded is %s", since, last, w.tracked().Annotations[annCheckpoint])
	}
}

// TestStoppedWaits: disks that cannot be read say why, and are backed up when they can.
func TestStoppedWaits(t *testing.T) {
	ctx := context.Background()
	user := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "user", UID: "user"}}
	user.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "root"}}}}
	user.Spec.Containers = []corev1.Container{{Name: "a", VolumeMounts: []corev1.VolumeMount{{Name: "a", MountPath: "/a"}}}}
	user.Status.Phase = corev1.PodRunning
	for name, row := range map[string]struct {
		before, after func(*world)
		says          string
	}{
		"another pod": {func(w *world) { w.must(w.api.Create(ctx, user.DeepCopy())) }, func(w *world) { w.must(w.api.Delete(ctx, user.DeepCopy())) },
			"another pod may write to a disk of it: pod user uses PersistentVolumeClaim root"},
		"another machine has the disk": {func(w *world) {
			pv := &corev1.PersistentVolume{}
			w.must(w.api.Get(ctx, client.ObjectKey{Name: "volume"}, pv))
			id := identity.Volume(pv)
			record := &accessv1.DiskAccess{ObjectMeta: metav1.ObjectMeta{Name: id.Name(), Labels: map[string]string{diskaccess.HolderLabel("p"): ""}}}
			record.Spec = accessv1.DiskAccessSpec{Disk: id.String(), Holders: []accessv1.Holder{{Namespace: "elsewhere", Machine: "m", Pod: "p", PodUID: "p", Mode: accessv1.WriteExclusive, ClaimUID: "c"}}}
			w.must(w.api.Create(ctx, record))
		}, func(w *world) { w.must(w.api.DeleteAllOf(ctx, &accessv1.DiskAccess{})) }, "PersistentVolumeClaim root: a pod of another namespace has it write-exclusive"},
		"no claim": {func(w *world) { w.must(w.api.Delete(ctx, claim("root"))) }, func(w *world) { w.must(w.api.Create(ctx, claim("root"))) },
			"a disk of it cannot be read: there is no PersistentVolumeClaim root"},
		"not bound": {func(w *world) { w.phase(corev1.ClaimPending) }, func(w *world) { w.phase(corev1.ClaimBound) }, "cannot be read: PersistentVolumeClaim root: it is not bound"},
	} {
		t.Run(name, func(t *testing.T) {
			w := stopped(t)
			row.before(w)
			b := w.run(of("one", backupv1.Tracker))
			if c := b.Condition("Progressing"); c == nil || c.Reason != "Initializing" || !strings.Contains(c.Message, row.says) || len(w.left()) > 0 {
				t.Fatalf("it says %s", conditions(b))
			}
			row.after(w)
			if b = w.run(b); b.Condition("Complete") == nil {
				t.Errorf("it does not begin: %s", conditions(b))
			}
		})
	}
}

// TestTargetIsADisk: a backup is not written to a disk of the machine that it is of, whether that runs or not.
func TestTargetIsADisk(t *testing.T) {
	for name, w := range map[string]*world{"stopped": stopped(t), "running": newWorld(t, claim("root"))} {
		b := of("one", backupv1.Tracker)
		b.Spec.PvcName = new("root")
		b = w.run(b)
		if c := b.Condition("Failed"); c == nil || !strings.Contains(c.Message, "PersistentVolumeClaim root, which has a disk of the machine: use a claim") || len(w.left()) > 0 {
			t.Errorf("%s: it says %s", name, conditions(b))
		}
	}
}

func (w *world) phase(p corev1.PersistentVolumeClaimPhase) {
	c := claim("root")
	w.must(w.api.Get(context.Background(), client.ObjectKeyFromObject(c), c))
	c.Status.Phase = p
	w.must(w.api.Status().Update(context.Background(), c))
}

// TestStoppedGivesWay: a machine that is started does not wait for its backup, which is made of the guest that runs.
func TestStoppedGivesWay(t *testing.T) {
	w := stopped(t)
	good := w.worker
	w.worker = func(task.BackUp) *task.Report { return nil }
	b := w.run(of("one", backupv1.Tracker))
	if c := b.Condition("Progressing"); c == nil || !strings.Contains(c.Message, "the backup is being written") || len(w.left()) != 1 || len(w.launcher.orders) > 0 {
		t.Fatalf("it says %s, left %v", conditions(b), w.left())
	}
	i := instance()
	w.must(w.api.Create(context.Background(), i)) // its launcher waits for the disks
	b = w.run(b)
	if c := b.Condition("Progressing"); c == nil || !strings.Contains(c.Message, "waiting until the guest runs") || len(w.left()) > 0 {
		t.Fatalf("the machine starts, and it says %s, left %v", conditions(b), w.left())
	}
	w.worker = good
	w.must(w.api.Create(context.Background(), launcherPod(i)))
	if b = w.run(b); b.Condition("Complete") == nil || w.launcher.moments != 1 {
		t.Errorf("%d moments, it says %s", w.launcher.moments, conditions(b))
	}
}

// TestWrittenMeanwhile: what was written to while it was read is no backup; a pod of Berth's cannot have been that.
func TestWrittenMeanwhile(t *testing.T) {
	ctx := context.Background()
	for name, row := range map[string]struct {
		labels map[string]string
		fails  bool
	}{"a user's pod": {nil, true}, "the machine, which was started at the end": {map[string]string{render.LabelMachine: "virt-launcher"}, false}} {
		w := stopped(t)
		good := w.worker
		w.worker = func(b task.BackUp) *task.Report {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "user", UID: types.UID("user"), Labels: maps.Clone(row.labels)}}
			p.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "root"}}}}
			p.Spec.Containers = []corev1.Container{{Name: "a", VolumeMounts: []corev1.VolumeMount{{Name: "a", MountPath: "/a"}}}}
			p.Status.Phase = corev1.PodRunning
			w.must(w.api.Create(ctx, p))
			return good(b)
		}
		b := w.run(of("one", backupv1.Tracker))
		if c := b.Condition("Failed"); (c != nil) != row.fails || row.fails && !strings.Contains(c.Message, "pod user used PersistentVolumeClaim root while it was read") {
			t.Errorf("%s: it says %s", name, conditions(b))
		}
	}
}
