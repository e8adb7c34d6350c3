//go:build e2e

package snapshot

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// TestPull: a client fetches the disks of a machine that runs, as they were at one moment although the guest goes on writing; then what changed; then the
// disks of the machine when it is stopped. A backup of which not everything was fetched is not the base of the next one. Without the token there is nothing.
func TestPull(t *testing.T) {
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
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "guest agent on") // what is typed before is lost
	y.RunPattern(vm, "write", 1, "first", "second")
	dir := t.TempDir()
	file := func(disk string) string { return filepath.Join(dir, disk) }
	sum := func(disk string) string { return y.FileSum(file(disk), 0, -1) }

	one := y.StartPull("one", "daily")
	y.RunPattern(vm, "write", 2, "first")
	for _, disk := range []string{"first", "second"} {
		if n := one.Fetch(disk, file(disk)); n < 4<<20 || one.Type() != backupv1.Full {
			t.Errorf("disk %s has %d bytes, in a backup that is %s: %s", disk, n, one.Type(), one.Says())
		}
	}
	if sum("first") != sum("second") {
		t.Error("the disks are not of the same moment")
	}
	for _, token := range []string{"", "secret-of-two"} {
		for _, url := range []string{one.Volume("first").MapEndpoint, one.Volume("second").DataEndpoint, one.Volume("first").DataEndpoint + "?x-kubevirt-export-token=" + token} {
			if code, body := one.Ask(url, token); code != http.StatusUnauthorized || len(body) > 200 {
				t.Errorf("%s with token %q: %d, %d bytes", url, token, code, len(body))
			}
		}
	}
	one.End()
	latest(t, y, "one")

	y.RunPattern(vm, "write", 3, "second")
	half := y.StartPull("half", "daily")
	if half.Type() != backupv1.Incremental || !strings.Contains(half.Says(), "what changed since checkpoint one-") {
		t.Errorf("it is %s: %s", half.Type(), half.Says())
	}
	half.Fetch("first", file("aside"))
	half.End()
	latest(t, y, "one")

	two := y.StartPull("two", "daily")
	for _, disk := range []string{"first", "second"} {
		if n := two.Fetch(disk, file(disk)); n < 4<<20 || n > 8<<20 {
			t.Errorf("%d bytes of disk %s changed", n, disk)
		}
	}
	two.End()
	latest(t, y, "two")
	y.SetRunStrategy(vm, kubevirt.RunHalted)
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
	off := y.StartPull("off", "daily")
	for _, disk := range []string{"first", "second"} {
		off.Fetch(disk, file(disk+"-off"))
		if was := y.Sum(disk, "disk.img"); sum(disk) != was || sum(disk+"-off") != was {
			t.Errorf("disk %s is not what the guest left: %s; increments %s, of the stopped machine %s", disk, was, sum(disk), sum(disk+"-off"))
		}
	}
	off.End()
	latest(t, y, "off")
}

// latest checks which backup the next one of the tracker is made on.
func latest(t *testing.T, y *fixture.Machines, name string) {
	t.Helper()
	var tracker backupv1.VirtualMachineBackupTracker
	if err := y.Kube.Get(t.Context(), client.ObjectKey{Namespace: y.Namespace, Name: "daily"}, &tracker); err != nil || !strings.HasPrefix(tracker.Latest(), name+"-") {
		t.Errorf("the last backup of the tracker is %q instead of %s: %v", tracker.Latest(), name, err)
	}
}
