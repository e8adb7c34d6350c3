//go:build e2e

package snapshot

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestSchedule: a machine is backed up every minute, in chains of two, and a snapshot of it is taken; what is not kept goes, with its files, and what the schedule did not make
// stays, whatever is written on it.
func TestSchedule(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.CreateBlankVolume("first", "localdisk")
	vm := y.MovableMachine("web", kubevirt.Volume{Name: "first", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "first"}}})
	vm.Labels = map[string]string{"tier": "front"}
	y.CreateMachine(vm)
	y.CreateTracker("by-hand", "web")
	y.CreateClaimForBackups("backups", "localdisk", "256Mi")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "guest agent on")
	y.RunPattern(vm, "write", 1, "first")
	stranger := complete(t, y, y.BackUp("stranger", "by-hand", "backups"), backupv1.Full, "")

	often := schedule(y, "often", accessv1.MachineScheduleSpec{Machine: "web", Schedule: "* * * * *", Keep: &accessv1.ScheduleKeep{Last: 1},
		Backup: &accessv1.ScheduledBackup{PvcName: "backups", Increments: ptr.To[int32](1)}})
	shots := schedule(y, "shots", accessv1.MachineScheduleSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}}, Schedule: "* * * * *",
		Keep: &accessv1.ScheduleKeep{Last: 1}, Snapshot: &accessv1.ScheduledSnapshot{}})
	y.Kubectl("patch", "vmbackup", stranger.Name, "--type=merge", "-p", fmt.Sprintf(`{"metadata":{"labels":{"berth.dev/schedule":%q},"ownerReferences":[`+
		`{"apiVersion":"berth.dev/v1alpha1","kind":"MachineSchedule","name":%q,"uid":%q,"controller":true}]}}`, often.UID, often.Name, often.UID))
	first := ""
	y.Wait("the first chain to be removed", 2*fixture.BootPatience, func(ctx context.Context) (bool, string) {
		made := scheduled(ctx, y)
		if first == "" && len(made) > 0 {
			first = made[0]
		}
		return first != "" && !slices.Contains(made, first), fmt.Sprint(made, says(ctx, y, often), y.Kubectl("get", "pods"))
	})
	y.Wait("an old snapshot to be deleted", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		var all snapshotv1.VirtualMachineSnapshotList
		if err := y.Kube.List(ctx, &all, client.InNamespace(y.Namespace)); err != nil {
			return false, err.Error()
		}
		s := says(ctx, y, shots)
		return len(all.Items) > 0 && len(all.Items) <= 2 && s.Status.LastSuccess != nil && s.Status.LastSuccess.Sub(shots.CreationTimestamp.Time) > 2*time.Minute, fmt.Sprint(len(all.Items), s.Status)
	})
	suspend(y, often)
	suspend(y, shots)
	y.Wait("what goes on to end", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		s := says(ctx, y, often)
		return len(s.Status.Machines) == 1 && s.Status.Machines[0].Reason == "Suspended" && s.Status.Machines[0].Removal == "", fmt.Sprint(s.Status)
	})
	y.SetRunStrategy(vm, kubevirt.RunHalted)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)

	set := y.FetchBackups("backups", "web")
	entries, err := os.ReadDir(set)
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	want := append(scheduled(t.Context(), y), *stranger.Status.CheckpointName)
	slices.Sort(want)
	if !slices.Equal(there, want) {
		t.Errorf("the claim has %v, and the backups are %v", there, want)
	}
	for _, checkpoint := range want {
		if y.FileSum(y.RestoreFrom(set, checkpoint, "first"), 0, -1) != y.Sum("first", "disk.img") {
			t.Errorf("backup %s is not the disk", checkpoint)
		}
	}
}

func schedule(y *fixture.Machines, name string, spec accessv1.MachineScheduleSpec) *accessv1.MachineSchedule {
	y.T.Helper()
	s := &accessv1.MachineSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: name}, Spec: spec}
	if err := y.Kube.Create(y.Context(), s); err != nil {
		y.T.Fatal(err)
	}
	return s
}

func suspend(y *fixture.Machines, s *accessv1.MachineSchedule) {
	y.T.Helper()
	y.Kubectl("patch", "machineschedule", s.Name, "--type=merge", "-p", `{"spec":{"suspend":true}}`)
}

func says(ctx context.Context, y *fixture.Machines, s *accessv1.MachineSchedule) *accessv1.MachineSchedule {
	now := &accessv1.MachineSchedule{}
	if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(s), now); err != nil {
		y.T.Log(err)
	}
	return now
}

// scheduled are the checkpoints of the complete backups that the schedule made.
func scheduled(ctx context.Context, y *fixture.Machines) []string {
	var all backupv1.VirtualMachineBackupList
	if err := y.Kube.List(ctx, &all, client.InNamespace(y.Namespace)); err != nil {
		y.T.Log(err)
	}
	var out []string
	for _, b := range all.Items {
		if strings.HasPrefix(b.Name, "often-web-") && b.Condition(backupv1.ConditionComplete) != nil {
			out = append(out, *b.Status.CheckpointName)
		}
	}
	return out
}
