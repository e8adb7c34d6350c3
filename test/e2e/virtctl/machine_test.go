//go:build e2e

package virtctl

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestVirtctlMachine: a machine that virtctl wrote is applied as it is, started, looked at, talked to on its console,
// restarted and stopped.
func TestVirtctlMachine(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	v := fixture.NewVirtctl(t, y.Env)
	manifest := v.Must("create", "vm", "--name=web", "--run-strategy=Manual", "--memory=256Mi", "--termination-grace-period=20",
		"--volume-import=type:http,url:"+y.GuestURL+",size:1Gi,storageclass:"+fixture.ClassWaits, "--volume-import=type:blank,size:64Mi,name:data")
	fixture.ApplyYAML(y, manifest)
	vm := &kubevirt.VirtualMachine{}
	vm.Namespace, vm.Name = y.Namespace, "web"
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.Patience)
	fixture.HasTexts(t, v.Must("vm", "status", "web"), "VirtualMachine "+y.Namespace+"/web  Stopped", "start it with: virtctl start web", "claim web-disk-0", "claim web-data")
	if o := v.Run("console", "web"); o.Code != 1 || !strings.Contains(o.Err, "is stopped; start it with: virtctl start web") {
		t.Errorf("the console of a stopped machine: code %d\n%s%s", o.Code, o.Out, o.Err)
	}

	if out := v.Must("start", "web"); out != "VM web was scheduled to start\n" {
		t.Errorf("start says %q", out)
	}
	y.Wait("vm status to show the import", fixture.BootPatience, func(context.Context) (bool, string) {
		tree := v.Must("vm", "status", "web")
		return strings.Contains(tree, "worker importer-") && strings.Contains(tree, "launcher virt-launcher-web-"), tree
	})
	close(y.Gate.Open)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	first := fixture.OnlyInstance(y)
	tree := v.Must("vm", "status", "web")
	fixture.HasTexts(t, tree, "VirtualMachine "+y.Namespace+"/web  Running  on "+first.Status.NodeName, "claim web-disk-0  Bound", "claim web-data  Bound")
	if strings.Contains(tree, "Pending") {
		t.Errorf("a running machine waits for something:\n%s", tree)
	}
	talk(t, v)
	plug(y, v, vm)

	if out := v.Must("restart", "web"); out != "VM web was scheduled to restart\n" {
		t.Errorf("restart says %q", out)
	}
	y.Wait("another instance", fixture.BootPatience, func(context.Context) (bool, string) {
		now := fixture.OnlyInstance(y)
		return now.UID != "" && now.UID != first.UID, string(now.Status.Phase)
	})
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	if out := v.Must("stop", "web", "--force", "--grace-period=0"); out != "VM web was scheduled to stop\n" {
		t.Errorf("stop says %q", out)
	}
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.BootPatience)
}

// plug adds a disk that was uploaded beside the machine to it while it runs, and removes it again.
func plug(y *fixture.Machines, v *fixture.Virtctl, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	v.Must("image-upload", "dv", "extra", "--image-path="+fixture.WriteFile(y.T, "extra.img", fixture.DiskImage(8)), "--like-vm=web", "--storage-class="+fixture.ClassWaits)
	if at, want := framework.VolumeNode(y.WaitBound("extra")), fixture.OnlyInstance(y).Status.NodeName; at != want {
		y.T.Errorf("the disk is on %s, the machine on %s", at, want)
	}
	out := v.Must("addvolume", "web", "--volume-name=extra", "--serial=EXTRA")
	if out != "Successfully submitted add volume request to VM web for volume extra\n" {
		y.T.Errorf("addvolume says %q", out)
	}
	y.GuestSays(vm, "serial=EXTRA size=8388608")
	out = v.Must("removevolume", "web", "--volume-name=extra")
	if out != "Successfully submitted remove volume request to VM web for volume extra\n" {
		y.T.Errorf("removevolume says %q", out)
	}
	y.GuestSays(vm, "disk removed sd")
}

// talk asks the guest on its console which disks it has, and leaves.
func talk(t *testing.T, v *fixture.Virtctl) {
	t.Helper()
	ctx, cancel := framework.WithPatience(t.Context(), fixture.BootPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, fixture.VirtctlProgram, append([]string{"console", "web"}, v.Args...)...)
	var said strings.Builder
	cmd.Stderr = &said
	keys, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	screen, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	typed := make(chan struct{})
	go func() {
		defer close(typed)
		ask(keys, answered)
	}()
	found := false
	for lines := bufio.NewScanner(screen); !found && lines.Scan(); {
		found = strings.Contains(lines.Text(), "berth-guest: disks: 2")
	}
	close(answered)
	<-typed
	_, _ = io.WriteString(keys, "\x1d") // and leave; that it has ended already is said below
	_, _ = io.Copy(io.Discard, screen)
	if err := cmd.Wait(); err != nil || !found {
		t.Errorf("talk to the guest on its console: answered %t, ended %v\n%s", found, err, said.String())
	}
	if want := "Successfully connected to web console. The escape sequence is ^]\n"; said.String() != want {
		t.Errorf("it says %q, want %q", said.String(), want)
	}
}

// ask types a command again and again until it is answered: a guest that still boots is deaf.
func ask(keys io.Writer, answered <-chan struct{}) {
	again := time.NewTicker(2 * time.Second)
	defer again.Stop()
	for {
		if _, err := io.WriteString(keys, "disks\n"); err != nil {
			return // virtctl has ended, and says why
		}
		select {
		case <-again.C:
		case <-answered:
			return
		}
	}
}
