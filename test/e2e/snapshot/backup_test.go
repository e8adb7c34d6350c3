//go:build e2e

package snapshot

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestBackup: the two disks of a machine are backed up while it runs, as a whole and then what changed; after a stop, while it does not run and when it
// runs again, with what differs from the backup before. Each backup is the disks as they were. A full claim ends a backup with a sentence, and the next one
// is right.
func TestBackup(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	var volumes []kubevirt.Volume
	for _, name := range []string{"first", "second"} {
		y.CreateBlankVolume(name, "localdisk")
		volumes = append(volumes, kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: name}}})
	}
	vm := y.MovableMachine("web", volumes...)
	y.CreateMachine(vm)
	y.CreateTracker("daily", "web")
	y.CreateClaimForBackups("backups", "localdisk", "192Mi")
	y.CreateClaimForBackups("small", "localdisk", "8Mi")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	// while the machine is stopped, one pod has its disks and this claim
	y.Kubectl("annotate", "persistentvolumeclaim", "backups", fixture.SelectedNodeAnnotation+"="+y.InstanceOf(t.Context(), vm).Status.NodeName)
	y.WaitBound("backups")
	y.GuestSays(vm, "guest agent on") // what is typed before is lost
	y.RunPattern(vm, "write", 1, "first", "second")

	one := complete(t, y, y.BackUp("one", "daily", "backups"), backupv1.Full, "it is the first backup of tracker daily")
	if len(one.Status.IncludedVolumes) != 2 || !strings.HasPrefix(one.Status.IncludedVolumes[0].DiskTarget, "vd") {
		t.Errorf("the volumes are %+v", one.Status.IncludedVolumes)
	}
	y.RunPattern(vm, "write", 2, "first")
	two := complete(t, y, y.BackUp("two", "daily", "backups"), backupv1.Incremental, "what changed since the backup before")
	three := complete(t, y, y.BackUp("three", "daily", "backups"), backupv1.Incremental, "what changed")

	y.RunPattern(vm, "write", 3, "first", "second")
	y.AnswerTo(vm, "write serial=first 8388608 50331648 4") // more than the small claim has room for
	full := y.BackUp("full", "daily", "small")
	if c := full.Condition(backupv1.ConditionFailed); c == nil || !strings.Contains(c.Message, "the place for backups is full") {
		t.Errorf("the claim is too small: %+v", full.Status.Conditions)
	}
	four := complete(t, y, y.BackUp("four", "daily", "backups"), backupv1.Incremental, "what changed")
	var tracker backupv1.VirtualMachineBackupTracker
	if err := y.Kube.Get(t.Context(), client.ObjectKey{Namespace: y.Namespace, Name: "daily"}, &tracker); err != nil || tracker.Latest() != *four.Status.CheckpointName {
		t.Errorf("%v: the tracker has %+v", err, tracker.Status)
	}
	y.SetRunStrategy(vm, kubevirt.RunHalted)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	five := complete(t, y, y.BackUp("five", "daily", "backups"), backupv1.Incremental, "what differs from the backup before")
	six := complete(t, y, y.BackUp("six", "daily", "backups", func(s *backupv1.VirtualMachineBackupSpec) { s.ForceFullBackup = true }), backupv1.Full, "because forceFullBackup is set")
	y.SetRunStrategy(vm, kubevirt.RunAlways)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "guest agent on")
	y.RunPattern(vm, "write", 4, "second")
	seven := complete(t, y, y.BackUp("seven", "daily", "backups"), backupv1.Incremental, "all was compared with it, because nothing recorded what changed")
	y.SetRunStrategy(vm, kubevirt.RunHalted)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)

	set := y.FetchBackups("backups", "web")
	sum := func(b *backupv1.VirtualMachineBackup, disk string) string {
		return y.FileSum(y.RestoreFrom(set, *b.Status.CheckpointName, disk), 0, -1)
	}
	for _, disk := range []string{"first", "second"} {
		if sum(seven, disk) != y.Sum(disk, "disk.img") {
			t.Errorf("disk %s of the last backup is not what the guest left", disk)
		}
	}
	if sum(one, "first") != sum(one, "second") || sum(two, "first") == sum(one, "first") || sum(two, "second") != sum(one, "second") ||
		sum(three, "first") != sum(two, "first") || sum(four, "first") == sum(two, "first") || sum(four, "second") == sum(three, "second") {
		t.Error("a backup is not its moment")
	}
	for _, disk := range []string{"first", "second"} { // nothing was written before the machine was stopped, nor while it was
		if sum(five, disk) != sum(four, disk) || sum(six, disk) != sum(four, disk) {
			t.Errorf("disk %s of a machine that did not run is not what it was", disk)
		}
	}
	if sum(seven, "first") != sum(six, "first") || sum(seven, "second") == sum(six, "second") {
		t.Error("the backup after the restart is not its moment")
	}
}

// complete checks that a backup is complete.
func complete(t *testing.T, y *fixture.Machines, b *backupv1.VirtualMachineBackup, kind backupv1.BackupType, says string) *backupv1.VirtualMachineBackup {
	t.Helper()
	c := b.Condition(backupv1.ConditionComplete)
	if c == nil || b.Status.Type != kind || !strings.Contains(c.Message, says) {
		t.Fatalf("backup %s: %s, %+v\n%s", b.Name, b.Status.Type, b.Status.Conditions, y.Kubectl("get", "pods"))
	}
	t.Logf("backup %s: %s", b.Name, c.Message)
	return b
}

// TestBackupGivesWay: a machine that is started while its claims are read does not wait for the backup, and the backup is made of the guest that runs.
// Another machine that has a disk of a stopped machine is waited for.
func TestBackupGivesWay(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.CreateBlankVolume("only", "localdisk")
	source := kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "only"}}
	user := y.MovableMachine("user", kubevirt.Volume{Name: "only", VolumeSource: source})
	vm := y.MovableMachine("web", kubevirt.Volume{Name: "only", VolumeSource: source})
	halted := kubevirt.RunHalted
	vm.Spec.RunStrategy = &halted
	y.CreateMachine(user)
	y.WaitStatus(user, kubevirt.StatusRunning, fixture.BootPatience)
	y.CreateMachine(vm)
	y.CreateTracker("daily", "web")
	y.CreateClaimForBackups("backups", "localdisk", "128Mi")
	b := y.StartBackup("one", "daily", "backups")
	y.Wait("backup one", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		if err := y.Kube.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil || b.Status == nil {
			return false, fmt.Sprint(err)
		}
		c := b.Condition(backupv1.ConditionProgressing)
		return c != nil && strings.Contains(c.Message, "another pod may write to a disk of it"), fmt.Sprint(b.Status.Conditions)
	})
	y.SetRunStrategy(user, kubevirt.RunHalted)
	y.WaitStatus(user, kubevirt.StatusStopped, fixture.BootPatience)
	y.SetRunStrategy(vm, kubevirt.RunAlways)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	complete(t, y, y.WaitBackup(b), backupv1.Full, "it is the first backup of tracker daily")
}
