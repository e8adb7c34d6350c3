package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/faults"
)

// pulled is a backup of the tracker that clients fetch.
func pulled(name string) *backupv1.VirtualMachineBackup {
	return of(name, backupv1.Tracker, func(b *backupv1.VirtualMachineBackup) {
		b.Spec.PvcName, b.Spec.Mode, b.Spec.TokenSecretRef = nil, ptr.To(backupv1.PullMode), "token"
	})
}

// served is the task of the worker that serves a backup; nil: there is none.
func (w *world) served(name string) *task.BackUp {
	w.t.Helper()
	p := &corev1.Pod{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: render.BackupWorker(name)}, p); err != nil {
		return nil
	}
	var b task.BackUp
	w.must(json.Unmarshal([]byte(p.Annotations[render.AnnTask]), &b))
	return &b
}

// remove deletes a backup.
func (w *world) remove(b *backupv1.VirtualMachineBackup) {
	w.t.Helper()
	w.must(w.api.Delete(context.Background(), b))
	if left := w.run(b); left != nil {
		w.t.Errorf("it is not gone: %s", conditions(left))
	}
}

// outcomePulled is what there is when two backups were fetched, and each was deleted.
func outcomePulled(w *world) string {
	w.t.Helper()
	out := ""
	for _, name := range []string{"one", "two"} {
		w.fetched = false
		b := w.run(pulled(name))
		s := w.served(name)
		out += fmt.Sprintf("%s %s %t %v\n%s%s %s %+v\n", b.Status.Type, *b.Status.CheckpointName, *b.Status.EndpointCert != "", b.Status.IncludedVolumes, conditions(b),
			s.Address, s.Bitmap, *s.Serve)
		w.fetched = true
		b = w.run(b)
		out += conditions(b)
		w.remove(b)
	}
	return fmt.Sprintf("%s%s %s %v %q %v", out, w.tracked().Latest(), w.tracked().Annotations[annCheckpoint], w.launcher.recorded, w.launcher.holds, w.left())
}

// TestPull: clients are told where they fetch what, everything and then what changed. A backup that was fetched and is deleted is the last of its
// tracker, whatever write is refused or is the controller's last, and nothing is left of it.
func TestPull(t *testing.T) {
	calm := newWorld(t)
	want := outcomePulled(calm)
	for _, part := range []string{
		"Full one-one00000 true [{root vda https://virt-backup-one.team.svc/exports/root/data https://virt-backup-one.team.svc/exports/root/map}]",
		"Progressing=True ExportReady: the disks can be fetched at the addresses in status.includedVolumes: all data, because it is the first backup of tracker daily; until 2026-01-01T02:00:00Z",
		"10.0.0.7:8083  {Listen::8443 TLSDir:/var/run/berth/server TokenDir:/var/run/berth/token}", "everything was fetched: delete the backup",
		"Incremental two-two00000 true", "what changed since checkpoint one-one00000; until", "10.0.0.7:8083 qemu:dirty-bitmap:",
		`two-two00000 {"name":"two-two00000","claim":"","machine":"machine"} [two-two00000] "" []`,
	} {
		if !strings.Contains(want, part) {
			t.Errorf("undisturbed: no %q in\n%s", part, want)
		}
	}
	for at := 1; at <= calm.faults.Writes; at++ {
		for _, fault := range faults.Kinds {
			w := newWorld(t)
			w.faults.At, w.faults.Kind = at, fault
			if diff := cmp.Diff(want, outcomePulled(w)); diff != "" {
				t.Errorf("write %d of %d, %s (-undisturbed +disturbed):\n%s", at, calm.faults.Writes, fault, diff)
			}
		}
	}
}

// TestPullEnds: a backup of which not everything was fetched is not the last of its tracker, however it ends: the next one has at least what it had.
func TestPullEnds(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(*world, *backupv1.VirtualMachineBackup)
		says string
	}{
		"deleted": {func(w *world, b *backupv1.VirtualMachineBackup) {
			w.must(w.api.Delete(context.Background(), b))
			w.run(b) // what was fetched is asked for
			w.clock.SetTime(time.Now().Add(time.Minute))
		}, ""},
		"time is up": {func(w *world, _ *backupv1.VirtualMachineBackup) {
			w.clock.SetTime(w.clock.Now().Add(2*time.Hour + time.Minute))
		},
			"Failed=True Failed: the backup ended after 2h0m0s (ttlDuration), before everything was fetched"},
		"guest gone": {func(w *world, _ *backupv1.VirtualMachineBackup) { w.stop() }, "Failed=True SourceLost: "},
		"server killed": {func(w *world, _ *backupv1.VirtualMachineBackup) {
			p := &corev1.Pod{}
			w.must(w.api.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: render.BackupWorker("two")}, p))
			p.Status.Phase = corev1.PodFailed
			w.must(w.api.Status().Update(context.Background(), p))
		}, "Failed=True Failed: the backup failed: the pod that served the disks was deleted or killed"},
		"server deleted": {func(w *world, _ *backupv1.VirtualMachineBackup) {
			w.must(w.api.Delete(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: render.BackupWorker("two")}}))
		}, "Failed=True Failed: the backup failed: the pod that served the disks was deleted or killed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			one := w.run(pulled("one"))
			w.fetched = true
			w.remove(one)
			w.fetched = false
			b := w.run(pulled("two"))
			row.end(w, b)
			b = w.run(b)
			if row.says == "" && b != nil || row.says != "" && !strings.Contains(conditions(b), row.says) {
				t.Errorf("it says %+v", b)
			}
			if b != nil && b.Status.EndpointCert != nil {
				t.Error("it says where it can be fetched, and it cannot")
			}
			if w.tracked().Latest() != "one-one00000" || w.launcher.recorded[0] != "one-one00000" || w.launcher.holds != "" && name != "guest gone" || len(w.left()) > 0 {
				t.Errorf("left: %s, %+v, %v", w.tracked().Latest(), w.launcher, w.left())
			}
		})
	}
}

// TestPullCompletes: a backup that was fetched is complete when its time is up, and if its guest has ended since.
func TestPullCompletes(t *testing.T) {
	for name, end := range map[string]func(*world){
		"time is up": func(w *world) { w.clock.SetTime(w.clock.Now().Add(3 * time.Hour)) },
		"guest gone": func(w *world) { w.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.run(pulled("one"))
			w.fetched = true
			end(w)
			if b = w.run(b); !strings.Contains(conditions(b), "Complete=True CompletedWithWarning: the backup is complete: all data") || w.tracked().Latest() != "one-one00000" {
				t.Errorf("%s, %s", w.tracked().Latest(), conditions(b))
			}
			if len(w.left()) > 0 {
				t.Errorf("left: %v", w.left())
			}
		})
	}
}

// TestPullOfAStoppedMachine: its disks are served from their claims, until it is started: then what clients have is of no moment.
func TestPullOfAStoppedMachine(t *testing.T) {
	w := stopped(t)
	b := w.run(pulled("one"))
	s := w.served("one")
	if s == nil || s.Address != "" || s.Files["root"] != "/volumes/0/disk.img" || !strings.Contains(conditions(b), "ExportReady") || b.Status.Type != backupv1.Full {
		t.Fatalf("%+v, %s", s, conditions(b))
	}
	w.start()
	if b = w.run(b); !strings.Contains(conditions(b), "Failed=True SourceLost: the backup failed: the machine was started while its disks were read") {
		t.Error(conditions(b))
	}
	if w.tracked().Latest() != "" || len(w.left()) > 0 {
		t.Errorf("left: %s, %v", w.tracked().Latest(), w.left())
	}
}

// TestPullAndPush: an increment is never made on a backup of the other mode, which who restores it does not have.
func TestPullAndPush(t *testing.T) {
	w := newWorld(t)
	w.run(of("pushed", backupv1.Tracker))
	b := w.run(pulled("one"))
	if !strings.Contains(conditions(b), "all data, because the last backup of tracker daily was written into a claim") || w.served("one").Bitmap != "" {
		t.Error(conditions(b))
	}
	w.fetched = true
	w.remove(b)
	if b = w.run(of("again", backupv1.Tracker)); b.Status.Type != backupv1.Full || !strings.Contains(conditions(b), "was fetched, and is in no claim") {
		t.Error(conditions(b))
	}
}
