//go:build e2e

package virtctl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestVirtctlGuest: the verbs that reach into a guest that runs, on one machine: its agent, its ports, its screen, its processors;
// and other users cannot use them.
func TestVirtctlGuest(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	v := fixture.NewVirtctl(t, y.Env)
	vm := y.TinyMachine("web", fixture.ClassWaits)
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", Ports: []kubevirt.Port{{Port: 80}}}}
	fixture.BootKernel(vm, "")
	y.CreateMachine(vm)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "network eth0")
	fewEvents(y)

	agentSays(y, v)
	ports(y, v)
	screen(y, v, vm)
	pauses(y, v, vm)
	if out := v.Must("expose", "vm", "web", "--name=web"); out != "Service web successfully exposed for vm web\n" {
		t.Errorf("expose says %q", out)
	}
	if got := y.Run(framework.Pod{Name: "client", Script: "wget -qO- http://web"}); !strings.Contains(got, "berth-guest") {
		t.Errorf("the Service leads to %q", got)
	}
	volumeRow(y, v, vm)
	startsPaused(y, v, vm)
}

// startsPaused: a machine that is started paused has a guest that says nothing until it is unpaused, and then starts as any other.
func startsPaused(y *fixture.Machines, v *fixture.Virtctl, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	v.Must("stop", "web", "--force", "--grace-period=0")
	y.WaitStatus(vm, kubevirt.StatusStopped, fixture.Patience)
	if out := v.Must("start", "web", "--paused"); out != "VM web was scheduled to start\n" {
		y.T.Errorf("start --paused says %q", out)
	}
	y.WaitStatus(vm, kubevirt.StatusPaused, fixture.BootPatience)
	if s := vm.Spec.Strategy(); s != kubevirt.RunAlways {
		y.T.Errorf("a halted machine that was started has the strategy %s", s)
	}
	_, launchers := y.PodsOf(y.Context(), vm)
	said, err := y.Client.CoreV1().Pods(y.Namespace).GetLogs(launchers[0].Name, &corev1.PodLogOptions{}).DoRaw(y.Context())
	if err != nil || strings.Contains(string(said), "berth-guest") {
		y.T.Errorf("a guest that stands still has said %s (%v)", said, err)
	}
	v.Must("unpause", "vm", "web")
	y.GuestSays(vm, "berth-guest: ready")
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.Patience)
}

func agentSays(y *fixture.Machines, v *fixture.Virtctl) {
	y.T.Helper()
	y.Wait("the guest's agent", fixture.Patience, func(context.Context) (bool, string) {
		o := v.Run("guestosinfo", "web")
		return o.Code == 0, o.Err
	})
	fixture.HasTexts(y.T, v.Must("guestosinfo", "web"), `"kind": "VirtualMachineInstanceGuestAgentInfo"`, `"hostname": "berth-guest"`, `"prettyName": "Berth test guest"`)
	fixture.HasTexts(y.T, v.Must("fslist", "web"), `"kind": "VirtualMachineInstanceFileSystemList"`, `"mountPoint": "/"`, `"totalBytes"`)
	fixture.HasTexts(y.T, v.Must("userlist", "web", "-o", "yaml"), "kind: VirtualMachineInstanceGuestOSUserList", "userName: console")
	for _, kind := range []string{"vmi/web", "vm/web"} {
		y.Kubectl("wait", kind, "--for=condition=AgentConnected", "--timeout=120s")
	}
	fixture.HasTexts(y.T, y.Kubectl("get", "vmi", "web", "-o", "jsonpath={.status.guestOSInfo.prettyName} {.status.machine.type} {.status.volumeStatus[*].target} {.status.memory.guestCurrent}"),
		"Berth test guest", "q35", "vda", "Mi")
	fixture.HasTexts(y.T, y.Kubectl("get", "vm", "web", "-o", "jsonpath={.status.volumeSnapshotStatuses}"), `"enabled":`)
}

// started runs virtctl until the test or the caller ends it.
func started(y *fixture.Machines, v *fixture.Virtctl, args ...string) (in io.WriteCloser, out *bufio.Reader, stop func()) {
	y.T.Helper()
	ctx, cancel := context.WithCancel(y.Context())
	cmd := exec.CommandContext(ctx, fixture.VirtctlProgram, append(args, v.Args...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		y.T.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		y.T.Fatal(err)
	}
	cmd.Stderr = y.T.Output()
	if err := cmd.Start(); err != nil {
		y.T.Fatal(err)
	}
	return in, bufio.NewReader(pipe), func() {
		cancel()
		_ = cmd.Wait() // it was ended
	}
}

// ports: what is sent to a port of the guest comes back from the guest, and a port of the launcher is none of the guest's.
func ports(y *fixture.Machines, v *fixture.Virtctl) {
	y.T.Helper()
	in, out, stop := started(y, v, "port-forward", "--stdio", "vm/web", "7")
	_, _ = io.WriteString(in, "hello\n")
	if got, err := out.ReadString('\n'); err != nil || got != "hello\n" {
		y.T.Errorf("the guest's echo: %q, %v", got, err)
	}
	stop()

	http80, udp7, own := fixture.FreePort(y.T), fixture.FreePort(y.T), fixture.FreePort(y.T)
	_, _, stop = started(y, v, "port-forward", "vmi/web/"+y.Namespace, fmt.Sprintf("%d:80", http80), fmt.Sprintf("udp/%d:7", udp7),
		fmt.Sprintf("%d:8081", own)) // where the launcher's readiness is asked
	defer stop()
	page := ""
	y.Wait("the guest's page", fixture.Patience, func(ctx context.Context) (bool, string) {
		var err error
		page, err = fixture.Fetch(ctx, fmt.Sprintf("http://127.0.0.1:%d/", http80))
		return err == nil, fmt.Sprint(err)
	})
	if page != "berth-guest\n" {
		y.T.Errorf("the guest's page is %q", page)
	}
	if text, err := fixture.Fetch(y.Context(), fmt.Sprintf("http://127.0.0.1:%d/returns", own)); err == nil {
		y.T.Errorf("port 8081 of the guest is the launcher's, which says %q", text)
	}
	conn, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", udp7))
	if err != nil {
		y.T.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	y.Wait("a datagram to come back", fixture.Patience, func(context.Context) (bool, string) {
		_, _ = conn.Write([]byte("datagram"))
		answer := make([]byte, 100)
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
		n, err := conn.Read(answer)
		return err == nil && string(answer[:n]) == "datagram", fmt.Sprintf("%q %v", answer[:n], err)
	})
}

// screen: a viewer finds the guest's screen, and while one looks and another has a port open, the pod listens nowhere but at its
// readiness port, at the port that the machine lists, and on its own loopback.
func screen(y *fixture.Machines, v *fixture.Virtctl, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	_, out, stop := started(y, v, "vnc", "web", "--proxy-only")
	defer stop()
	line, err := out.ReadString('\n')
	var at struct{ Port int }
	if err != nil || json.Unmarshal([]byte(line), &at) != nil || at.Port == 0 {
		y.T.Fatalf("vnc says %q, %v", line, err)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", at.Port))
	if err != nil {
		y.T.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(fixture.Patience))
	hello := make([]byte, 12)
	if _, err := io.ReadFull(conn, hello); err != nil || string(hello) != "RFB 003.008\n" {
		y.T.Errorf("the screen says %q, %v", hello, err)
	}
	shot := filepath.Join(y.T.TempDir(), "screen.png") // while a user looks at the screen
	v.Must("vnc", "screenshot", "web", "--file", shot)
	if text, err := os.ReadFile(shot); err != nil {
		y.T.Error(err)
	} else if c, err := png.DecodeConfig(bytes.NewReader(text)); err != nil || c.Width < 640 || c.Height < 400 {
		y.T.Errorf("the picture is %d by %d: %v", c.Width, c.Height, err)
	}
	in, echo, end := started(y, v, "port-forward", "--stdio", "vm/web", "7")
	defer end()
	_, _ = io.WriteString(in, "hello\n")
	_, _ = echo.ReadString('\n')
	_, launchers := y.PodsOf(y.Context(), vm)
	if len(launchers) != 1 {
		y.T.Fatalf("machine %s has %d launchers", vm.Name, len(launchers))
	}
	table := y.Kubectl("exec", launchers[0].Name, "-c", "compute", "--", "cat", "/proc/net/tcp", "/proc/net/tcp6")
	seen := 0
	for line := range strings.SplitSeq(table, "\n") {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "0A" { // which listens
			continue
		}
		seen++
		address, port, _ := strings.Cut(f[1], ":")
		if port != fmt.Sprintf("%04X", 8081) && port != fmt.Sprintf("%04X", 80) && address != "0100007F" {
			y.T.Errorf("the pod listens at %s", f[1])
		}
	}
	if seen < 3 {
		y.T.Errorf("the pod listens at %d places: the port that is forwarded is not among them\n%s", seen, table)
	}
}

// pauses: a guest that is paused says so, stays so, and continues.
func pauses(y *fixture.Machines, v *fixture.Virtctl, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	if out := v.Must("pause", "vm", "web"); out != "VMI web was scheduled to pause\n" {
		y.T.Errorf("pause says %q", out)
	}
	y.WaitStatus(vm, kubevirt.StatusPaused, fixture.Patience)
	y.Kubectl("wait", "vmi/web", "--for=condition=Paused", "--timeout=60s")
	y.Kubectl("wait", "vm/web", "--for=condition=Paused", "--timeout=60s")
	if o := v.Run("pause", "vmi", "web"); o.Code == 0 || !strings.Contains(o.Err, "VMI is already paused") {
		y.T.Errorf("a second pause: %d %s", o.Code, o.Err)
	}
	if o := v.Run("guestosinfo", "web"); o.Code == 0 {
		y.T.Errorf("the agent of a paused guest says %s", o.Out)
	}
	if out := v.Must("unpause", "vmi", "web"); out != "VMI web was scheduled to unpause\n" {
		y.T.Errorf("unpause says %q", out)
	}
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.Patience)
	y.Wait("its instance to be paused no more", fixture.Patience, func(ctx context.Context) (bool, string) { // it is written after the machine
		all := y.InstanceOf(ctx, vm).Status.Conditions
		paused := slices.ContainsFunc(all, func(c kubevirt.Condition) bool { return c.Type == "Paused" })
		return !paused, fmt.Sprintf("%+v", all)
	})
	y.Wait("the guest to answer again", fixture.Patience, func(context.Context) (bool, string) {
		o := v.Run("guestosinfo", "web")
		return o.Code == 0, o.Err
	})
}

// volumeRow: the machine's disk is listed with where it is.
func volumeRow(y *fixture.Machines, v *fixture.Virtctl, vm *kubevirt.VirtualMachine) {
	y.T.Helper()
	var list struct {
		Items []struct {
			Name, Node, Phase, Class string
			Machines                 []string
		}
	}
	text := v.Must("volumes", "-o", "json")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		y.T.Fatalf("%v in %s", err, text)
	}
	node := y.InstanceOf(y.Context(), vm).Status.NodeName
	if len(list.Items) != 1 || list.Items[0].Name != "web-0" || list.Items[0].Node != node || list.Items[0].Phase != "Succeeded" ||
		list.Items[0].Class != fixture.ClassWaits || strings.Join(list.Items[0].Machines, " ") != "web" {
		y.T.Errorf("the disk of web on %s is listed as %s", node, text)
	}
	fixture.HasTexts(y.T, v.Must("volumes"), "NAME", "web-0", "Succeeded", node)
}

// fewEvents: one start of a machine with one disk has left a dozen events of ours at most on the machine, its instance and its volume, and
// no object says the same twice in a row.
func fewEvents(y *fixture.Machines) {
	y.T.Helper()
	list, err := y.Client.EventsV1().Events(y.Namespace).List(y.Context(), metav1.ListOptions{})
	if err != nil {
		y.T.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	last, total, all := map[types.UID]string{}, 0, ""
	for _, e := range list.Items {
		if !slices.Contains([]string{"VirtualMachine", "VirtualMachineInstance", "DataVolume"}, e.Regarding.Kind) {
			continue
		}
		text := e.Reason + ": " + e.Note
		total++
		all += e.Regarding.Kind + " " + text + "\n"
		if e.Series != nil || last[e.Regarding.UID] == text {
			y.T.Errorf("%s %s says it again: %s", e.Regarding.Kind, e.Regarding.Name, text)
		}
		last[e.Regarding.UID] = text
	}
	if total == 0 || total > 12 {
		y.T.Errorf("one start has left %d events:\n%s", total, all)
	}
}
