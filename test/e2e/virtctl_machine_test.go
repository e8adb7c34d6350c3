//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestVirtctlMachine: a machine that virtctl wrote is applied as it is, started, looked at, talked to on its console,
// restarted and stopped.
func TestVirtctlMachine(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	v := newTool(t, y.Env)
	manifest := v.must("create", "vm", "--name=web", "--run-strategy=Manual", "--memory=256Mi", "--termination-grace-period=20",
		"--volume-import=type:http,url:"+y.url+",size:1Gi,storageclass:"+classWaits, "--volume-import=type:blank,size:64Mi,name:data")
	apply(y, manifest)
	vm := &kubevirt.VirtualMachine{}
	vm.Namespace, vm.Name = y.Namespace, "web"
	y.status(vm, kubevirt.StatusStopped, patience)
	has(t, v.must("vm", "status", "web"), "VirtualMachine "+y.Namespace+"/web  Stopped", "start it with: virtctl start web", "claim web-disk-0", "claim web-data")
	if o := v.run("console", "web"); o.code != 1 || !strings.Contains(o.err, "is stopped; start it with: virtctl start web") {
		t.Errorf("the console of a stopped machine: code %d\n%s%s", o.code, o.out, o.err)
	}

	if out := v.must("start", "web"); out != "VM web was scheduled to start\n" {
		t.Errorf("start says %q", out)
	}
	y.Wait("vm status to show the import", boot, func(context.Context) (bool, string) {
		tree := v.must("vm", "status", "web")
		return strings.Contains(tree, "worker importer-") && strings.Contains(tree, "launcher virt-launcher-web-"), tree
	})
	close(y.gate.open)
	y.status(vm, kubevirt.StatusRunning, boot)
	first := instance(y)
	tree := v.must("vm", "status", "web")
	has(t, tree, "VirtualMachine "+y.Namespace+"/web  Running  on "+first.Status.NodeName, "claim web-disk-0  Bound", "claim web-data  Bound")
	if strings.Contains(tree, "Pending") {
		t.Errorf("a running machine waits for something:\n%s", tree)
	}
	talk(t, v)
	plug(y, v, vm)

	if out := v.must("restart", "web"); out != "VM web was scheduled to restart\n" {
		t.Errorf("restart says %q", out)
	}
	y.Wait("another instance", boot, func(context.Context) (bool, string) {
		now := instance(y)
		return now.UID != "" && now.UID != first.UID, string(now.Status.Phase)
	})
	y.status(vm, kubevirt.StatusRunning, boot)
	if out := v.must("stop", "web", "--force", "--grace-period=0"); out != "VM web was scheduled to stop\n" {
		t.Errorf("stop says %q", out)
	}
	y.status(vm, kubevirt.StatusStopped, boot)
}

// plug adds a disk that was uploaded beside the machine to it while it runs, and removes it again.
func plug(y *yard, v *tool, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	v.must("image-upload", "dv", "extra", "--image-path="+file(y.T, "extra.img", image(8)), "--like-vm=web", "--storage-class="+classWaits)
	if at, want := framework.VolumeNode(y.WaitBound("extra")), instance(y).Status.NodeName; at != want {
		y.T.Errorf("the disk is on %s, the machine on %s", at, want)
	}
	out := v.must("addvolume", "web", "--volume-name=extra", "--serial=EXTRA")
	if out != "Successfully submitted add volume request to VM web for volume extra\n" {
		y.T.Errorf("addvolume says %q", out)
	}
	y.guestSays(vm, "serial=EXTRA size=8388608")
	out = v.must("removevolume", "web", "--volume-name=extra")
	if out != "Successfully submitted remove volume request to VM web for volume extra\n" {
		y.T.Errorf("removevolume says %q", out)
	}
	y.guestSays(vm, "disk removed sd")
}

func has(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not in\n%s", w, text)
		}
	}
}

// apply does what the user does with what virtctl wrote.
func apply(y *yard, manifest string) {
	y.T.Helper()
	cmd := exec.Command("../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(y.T), "-n", y.Namespace, "apply", "--server-side", "--validate=strict", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		y.T.Fatalf("apply: %v\n%s\n%s", err, out, manifest)
	}
}

// instance is the machine's instance; an empty one if there is none.
func instance(y *yard) kubevirt.VirtualMachineInstance {
	y.T.Helper()
	var i kubevirt.VirtualMachineInstance
	_ = y.kube.Get(y.Context(), types.NamespacedName{Namespace: y.Namespace, Name: "web"}, &i) // there may be none
	return i
}

// talk asks the guest on its console which disks it has, and leaves.
func talk(t *testing.T, v *tool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), boot)
	defer cancel()
	cmd := exec.CommandContext(ctx, virtctlProgram, append([]string{"console", "web"}, v.args...)...)
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
