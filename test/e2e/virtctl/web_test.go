//go:build e2e

package virtctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/test/browser"
	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

var pageAddress = regexp.MustCompile(`http://\S+`)

// openPage runs virtctl web, and opens what it prints in a browser, over a line that can be cut.
func openPage(y *fixture.Machines) (*browser.Browser, *browser.Line) {
	y.T.Helper()
	_, out, stop := started(y, fixture.NewVirtctl(y.T, y.Env), "web", "--open=false")
	y.T.Cleanup(stop)
	line, err := out.ReadString('\n')
	address := pageAddress.FindString(line)
	if err != nil || address == "" {
		y.T.Fatalf("virtctl web says %q, %v", line, err)
	}
	way := browser.NewLine(y.T, address)
	b := browser.New(y.T)
	b.Open(way.Over(address))
	b.Until(`document.body.dataset.ready`, fixture.BootPatience)
	return b, way
}

// TestWebMachine: a person makes a machine through the form, sees why it waits and how it goes through its steps, types in its console,
// looks at its screen, and stops it; the page says when its connection is lost, and is right again afterwards.
func TestWebMachine(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	b, way := openPage(y)

	b.Click("nav .button")
	b.Until(`document.querySelector("#new")`, fixture.Patience)
	b.Fill("[name=name]", "web")
	b.Fill("[name=namespace]", y.Namespace)
	b.Choose("[name=source]", "http")
	b.Fill("[name=url]", y.GuestURL)
	b.Fill("[name=size]", "1Gi")
	b.Fill("[name=memory]", "256Mi")
	b.Choose("[name=class]", fixture.ClassWaits)
	b.Has("#manifest", "kind: VirtualMachine", fixture.Patience)
	b.Shot("new")
	b.Click("#apply")

	b.Has("main h1", "web", fixture.Patience)
	b.Has(".steps", "importing", fixture.BootPatience)
	b.Has(".tree", "worker", fixture.BootPatience)
	b.Shot("importing")
	b.Open("http://" + way.Host + "/")
	b.Has(".waits", "waiting for its disks", fixture.Patience)
	b.Has("[data-list=columns]", "written", fixture.Patience) // of the pools of nodes
	b.Shot("waits")
	close(y.Gate.Open)
	b.Open("http://" + way.Host + "/machines/" + y.Namespace + "/web")
	b.Has("#state", "Running", fixture.BootPatience)
	vm := &kubevirt.VirtualMachine{}
	vm.Namespace, vm.Name = y.Namespace, "web"
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	b.Has(".steps", "running", fixture.Patience)
	if steps := b.Text(".steps"); strings.Count(steps, "held until a node is chosen") != 1 {
		t.Errorf("one disk was held once, and the steps are\n%s", steps)
	}
	b.Shot("machine")

	way.Cut()
	b.Has("#connection", "The connection was lost", fixture.Patience)
	way.Mend()
	b.Until(`document.getElementById("connection").hidden`, fixture.Patience)
	b.Has("#state", "Running", fixture.Patience)

	b.Click(`a[href$="/console"]`)
	b.Has("#stream-state", "connected", fixture.Patience)
	typeUntil(b, "disks\r", "berth-guest: disks: 1")
	b.Shot("console")
	b.Open("http://" + way.Host + "/machines/" + y.Namespace + "/web/screen")
	b.Has("#stream-state", "connected", fixture.Patience)
	// A canvas that was not drawn on is 300 by 150 and transparent.
	b.Until(`(c => c && c.width >= 640 && c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 === 3 && v === 255))(document.querySelector("#screen canvas"))`, fixture.Patience)
	b.Shot("screen")

	press(b, "http://"+way.Host+"/machines/"+y.Namespace+"/web", "#act-stop", "Asked to stop.")
	b.Has("#state", "Stopped", fixture.BootPatience)
	b.Calm(way.Host)
}

// press presses a button until what it asks for is taken: the API behind the page may be starting again, because another test ended it.
// Then the page says so.
func press(b *browser.Browser, page, button, want string) {
	b.T.Helper()
	for end := time.Now().Add(fixture.Patience); ; {
		b.Open(page)
		b.Click(button)
		b.Until(`!document.querySelector("#said").hidden`, fixture.Patience)
		said := b.Text("#said")
		if strings.Contains(said, want) {
			return
		}
		if time.Now().After(end) || !strings.Contains(said, "currently unable to handle the request") {
			b.T.Fatalf("%s was pressed, and the page says %q", button, said)
		}
	}
}

// TestWebVerbs: what a person asks of a machine through the page is done, and the page shows it: it is paused and continues, gets
// a disk and gives it back, has a snapshot taken and goes back to it, moves to another node, and is restarted.
func TestWebVerbs(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	vm := y.MovableMachine("verbs", kubevirt.Volume{Name: "root", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "verbs-root"}}})
	vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "verbs-root"}, Spec: fixture.BlankDisk(fixture.ClassDisk)}}
	y.CreateMachine(vm)
	if err := y.Kube.Create(t.Context(), &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: "spare"}, Spec: fixture.BlankDisk(fixture.ClassDisk)}); err != nil {
		t.Fatal(err)
	}
	b, way := openPage(y)
	page := "http://" + way.Host + "/machines/" + y.Namespace + "/verbs"
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")

	press(b, page, "#act-pause", "Asked to pause.")
	b.Has("#state", "Paused", fixture.Patience)
	press(b, page, "#act-unpause", "Asked to go on.")
	b.Has("#state", "Running", fixture.Patience)

	press(b, page, `form[data-act=addvolume] button`, "Asked to add spare.")
	y.Wait("the guest to have the disk", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		all := fmt.Sprint(y.InstanceOf(ctx, vm).Status.VolumeStatus)
		return slices.ContainsFunc(y.InstanceOf(ctx, vm).Status.VolumeStatus, func(v kubevirt.VolumeStatus) bool {
			return v.Name == "spare" && v.Phase == kubevirt.VolumeReady
		}), all
	})
	press(b, page, `button[data-volume=spare]`, "Asked to remove spare.")
	b.Until(`document.querySelector("#add-volume")?.innerText.includes("spare")`, fixture.Patience) // it is nobody's again

	y.RunPattern(vm, "write", 1, "root")
	press(b, page, `form[data-act=snapshot] button`, "Snapshot verbs-1 is being taken.")
	b.Until(`document.querySelector("button[data-snapshot='verbs-1']")`, fixture.Patience)
	y.RunPattern(vm, "write", 2, "root")
	press(b, page, "#act-stop", "Asked to stop.")
	b.Has("#state", "Stopped", fixture.Patience)
	press(b, page, `button[data-snapshot='verbs-1']`, "The machine goes back to verbs-1")
	b.Until(`document.querySelector("button[data-snapshot='verbs-1']")`, fixture.BootPatience) // it can be gone back to again
	y.Wait("the restore to be complete", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		var all snapshotv1.VirtualMachineRestoreList
		err := y.Kube.List(ctx, &all, client.InNamespace(y.Namespace))
		return err == nil && len(all.Items) == 1 && all.Items[0].Status.Complete != nil && *all.Items[0].Status.Complete, fmt.Sprint(all.Items, err)
	})
	b.Shot("snapshots")
	press(b, page, "#act-start", "Asked to start.")
	b.Has("#state", "Running", fixture.BootPatience)
	y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(vm, "berth-guest: ready")
	y.RunPattern(vm, "verify", 1, "root")
	makesAnother(y, b, vm, page)
	asksToMove(y, b, vm, page)
	b.Calm(way.Host)
}

// makesAnother has a machine made of a backup of this one through its page, and starts it.
func makesAnother(y *fixture.Machines, b *browser.Browser, vm *kubevirt.VirtualMachine, page string) {
	y.T.Helper()
	y.SharedClaim("backups")
	y.CreateTracker("daily", vm.Name)
	made := y.BackUp("first", "daily", "backups")
	other := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: y.Namespace, Name: vm.Name + "-" + *made.Status.CheckpointName}}
	press(b, page, `button[data-backup=first]`, other.Name)
	b.Shot("backups")
	y.WaitStatus(other, kubevirt.StatusStopped, fixture.BootPatience)
	y.SetRunStrategy(other, kubevirt.RunAlways)
	y.WaitStatus(other, kubevirt.StatusRunning, fixture.BootPatience)
	y.GuestSays(other, "berth-guest: ready")
	y.RunPattern(other, "verify", 1, "root")
	y.SetRunStrategy(other, kubevirt.RunHalted)
	y.WaitStatus(other, kubevirt.StatusStopped, fixture.BootPatience)
}

// asksToMove has a machine move and restart through its page, which says where it is and what it is doing.
func asksToMove(y *fixture.Machines, b *browser.Browser, vm *kubevirt.VirtualMachine, page string) {
	y.T.Helper()
	from := y.InstanceOf(y.Context(), vm)
	press(b, page, "#act-migrate", "Asked to move to another node.")
	b.Has(".head", "moves to", fixture.Patience)
	b.Shot("moving")
	b.Until(fmt.Sprintf(`(t => t.includes(", on ") && !t.includes(", on %s") && !t.includes("moves to"))(document.querySelector(".head").innerText)`, from.Status.NodeName), fixture.MovePatience)
	if at := y.InstanceOf(y.Context(), vm).Status.NodeName; at == from.Status.NodeName || !strings.Contains(b.Text(".head"), ", on "+at) {
		y.T.Errorf("it went from %s to %s, and the page says %s", from.Status.NodeName, at, b.Text(".head"))
	}
	y.WaitOneLauncher(vm)
	y.RunPattern(vm, "verify", 1, "root")
	press(b, page, "#act-restart", "Asked to restart.")
	y.Wait("the machine to run again", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		i := y.InstanceOf(ctx, vm)
		return i != nil && i.UID != from.UID && i.Status.Phase == kubevirt.PhaseRunning, fmt.Sprint(i)
	})
	b.Has("#state", "Running", fixture.Patience)
}

// typeUntil types a line in the terminal again and again until the guest answers: one that still boots is deaf.
func typeUntil(b *browser.Browser, line, want string) {
	b.T.Helper()
	shown := fmt.Sprintf(`Array.from({length: berthTerminal.buffer.active.length}, (_, i) => berthTerminal.buffer.active.getLine(i).translateToString()).join("\n").includes(%q)`, want)
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for end := time.Now().Add(fixture.BootPatience); time.Now().Before(end); <-tick.C {
		b.Do(chromedp.KeyEvent(line))
		var is bool
		b.Do(chromedp.Evaluate(shown, &is))
		if is {
			return
		}
	}
	b.T.Fatalf("the guest does not answer %q", line)
}

// TestWebUpload: a file that is dropped on the page becomes a volume. It is held, says so and is put on a node; its bar moves; the
// connection is lost on the way, the tab is closed, and the upload continues where it was.
func TestWebUpload(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	b, way := openPage(y)
	b.Open("http://" + way.Host + "/volumes")
	b.Until(`document.body.dataset.ready`, fixture.Patience)
	const size = 24
	path := fixture.WriteFile(t, "dropped.img", fixture.DiskImage(size))
	way.Slow(2 << 20)
	b.Drop("#drop", path)
	b.Until(`document.querySelector("#upload-ask").open`, fixture.Patience)
	b.Fill("#upload-ask [name=namespace]", y.Namespace)
	b.Fill("#upload-ask [name=class]", fixture.ClassWaits)
	b.Click("#upload-ask .main")
	b.Has("#uploads", "held", fixture.BootPatience)
	b.Shot("held")
	b.Click("#uploads form button")
	b.Until(`document.querySelector("#uploads progress").value > 20`, fixture.BootPatience)
	b.Shot("upload")
	b.Has(`[data-list=rows]`, "UploadReady", fixture.Patience)
	way.Cut()
	b.Has("#uploads", "it goes on in", fixture.Patience)
	way.Mend()
	b.Until(`document.querySelector("#uploads progress").value > 35`, fixture.BootPatience)
	b.NewTab()
	b.Open("http://" + way.Host + "/volumes")
	b.Has("#uploads", "did not end: drop the file again", fixture.Patience)
	b.Until(`document.body.dataset.ready`, fixture.Patience)
	b.Drop("#drop", lookalike(t, path))
	b.Has("#upload-ask h2", "Upload dropped.img", fixture.Patience) // and does not continue with the first
	b.Do(chromedp.Evaluate(`document.querySelector("#upload-ask").close("no")`, nil))
	b.Drop("#drop", path)
	b.Has("#upload-ask h2", "Go on with dropped.img", fixture.Patience)
	b.Click("#upload-ask .main")
	b.Until(`!document.querySelector("#upload-ask").open`, fixture.Patience)
	again := `[...document.querySelectorAll("#uploads progress")].at(-1)`
	b.Until(again+`.value > 0`, fixture.BootPatience)
	var from float64
	b.Do(chromedp.Evaluate(again+`.value`, &from))
	if from < 20 { // where the first tab was long before
		t.Errorf("the upload begins anew: it is at %.0f %%", from)
	}
	b.Has("#uploads", "sent; the cluster makes a disk of it.", fixture.BootPatience)
	y.Wait("the volume to be filled", fixture.BootPatience, func(ctx context.Context) (bool, string) {
		var dv cdiv1.DataVolume
		dv.Namespace, dv.Name = y.Namespace, "dropped"
		err := y.Kube.Get(ctx, client.ObjectKeyFromObject(&dv), &dv)
		return err == nil && dv.Status.Phase == cdiv1.Succeeded, fmt.Sprint(dv.Status.Phase, err)
	})
	b.Has(`[id="disk/`+y.Namespace+`/dropped"]`, "Succeeded", fixture.Patience)
	b.Calm(way.Host)
}

// lookalike is another file of the same name, size and time.
func lookalike(t *testing.T, path string) string {
	t.Helper()
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	other := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := errors.Join(os.WriteFile(other, data, 0o600), os.Chtimes(other, was.ModTime(), was.ModTime())); err != nil {
		t.Fatal(err)
	}
	return other
}

// TestWebSignIn: the page of config/web in the cluster. A user signs in with a token that may read one namespace, sees the machine
// in it and cannot start it; the pod itself has no token.
func TestWebSignIn(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	y.Kubectl("-n", "berth", "apply", "--server-side", "--force-conflicts", "-k", "../../../config/web")
	t.Cleanup(func() {
		cmd := exec.Command("../../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(t), "delete", "--ignore-not-found", "--wait=false", "-k", "../../../config/web")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	y.Kubectl("create", "serviceaccount", "looker")
	y.Kubectl("create", "role", "looker", "--verb=get,list,watch", "--resource=virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io,persistentvolumeclaims,pods")
	y.Kubectl("create", "rolebinding", "looker", "--role=looker", "--serviceaccount="+y.Namespace+":looker")
	vm := y.ExampleMachine("seen")
	vm.Spec.RunStrategy, vm.Spec.Running = new(kubevirt.RunHalted), nil
	y.CreateMachine(vm)
	token := strings.TrimSpace(y.Kubectl("create", "token", "looker"))
	y.Kubectl("-n", "berth", "rollout", "status", "deployment/berth-web", "--timeout=3m")
	mounts := y.Kubectl("-n", "berth", "get", "pods", "-l", "app.kubernetes.io/component=web", "-o", "jsonpath={.items[*].spec.volumes[*].projected}")
	if strings.TrimSpace(mounts) != "" {
		t.Errorf("the pod has a token: %s", mounts)
	}
	port := fixture.FreePort(t)
	ctx, cancel := context.WithCancel(y.Context())
	forward := exec.CommandContext(ctx, "../../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(t), "-n", "berth", "port-forward", "service/berth-web", fmt.Sprintf("%d:443", port))
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = forward.Wait() })
	base := fmt.Sprintf("https://127.0.0.1:%d", port)
	y.Wait("the page", fixture.Patience, func(ctx context.Context) (bool, string) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil, fmt.Sprint(err)
	})
	b := browser.New(t)
	b.Open(base + "/volumes") // which leads to the door
	b.Until(`location.pathname === "/sign-in"`, fixture.Patience)
	b.Fill("[name=token]", "made-up")
	b.Click("form .main")
	b.Has("[role=alert]", "does not know this token", fixture.Patience)
	b.Fill("[name=token]", token)
	b.Fill("[name=namespace]", y.Namespace)
	b.Click("form .main")
	b.Has("[data-list=columns]", "seen", fixture.Patience)
	b.Has("[data-list=foot]", "nodes", fixture.Patience)
	b.Shot("sign-in")
	b.Open(base + "/machines/" + y.Namespace + "/seen")
	b.Click("#act-start")
	b.Has("#said", "forbidden", fixture.Patience)
	b.Click("nav form button")
	b.Until(`location.pathname === "/sign-in"`, fixture.Patience)
	b.Open(base + "/")
	b.Until(`location.pathname === "/sign-in"`, fixture.Patience)
}
