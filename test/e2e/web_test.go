//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/test/browser"
	"github.com/berth-vm/berth/test/e2e/framework"
)

var pageAddress = regexp.MustCompile(`http://\S+`)

// openPage runs virtctl web, and opens what it prints in a browser, over a line that can be cut.
func openPage(y *yard) (*browser.Browser, *browser.Line) {
	y.T.Helper()
	_, out, stop := started(y, newTool(y.T, y.Env), "web", "--open=false")
	y.T.Cleanup(stop)
	line, err := out.ReadString('\n')
	address := pageAddress.FindString(line)
	if err != nil || address == "" {
		y.T.Fatalf("virtctl web says %q, %v", line, err)
	}
	way := browser.NewLine(y.T, address)
	b := browser.New(y.T)
	b.Open(way.Over(address))
	b.Until(`document.body.dataset.ready`, boot)
	return b, way
}

// TestWebMachine: a person makes a machine through the form, sees why it waits and how it goes through its steps, types in its console,
// looks at its screen, and stops it; the page says when its connection is lost, and is right again afterwards.
func TestWebMachine(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	b, way := openPage(y)

	b.Click("nav .button")
	b.Until(`document.querySelector("#new")`, patience)
	b.Fill("[name=name]", "web")
	b.Fill("[name=namespace]", y.Namespace)
	b.Choose("[name=source]", "http")
	b.Fill("[name=url]", y.url)
	b.Fill("[name=size]", "1Gi")
	b.Fill("[name=memory]", "256Mi")
	b.Choose("[name=class]", classWaits)
	b.Has("#manifest", "kind: VirtualMachine", patience)
	b.Shot("new")
	b.Click("#apply")

	b.Has("main h1", "web", patience)
	b.Has(".steps", "importing", boot)
	b.Has(".tree", "worker", boot)
	b.Shot("importing")
	b.Open("http://" + way.Host + "/")
	b.Has(".waits", "waiting for its disks", patience)
	b.Shot("waits")
	close(y.gate.open)
	b.Open("http://" + way.Host + "/machines/" + y.Namespace + "/web")
	b.Has("#state", "Running", boot)
	vm := &kubevirt.VirtualMachine{}
	vm.Namespace, vm.Name = y.Namespace, "web"
	y.status(vm, kubevirt.StatusRunning, boot)
	b.Has(".steps", "running", patience)
	b.Shot("machine")

	way.Cut()
	b.Has("#connection", "The connection was lost", patience)
	way.Mend()
	b.Until(`document.getElementById("connection").hidden`, patience)
	b.Has("#state", "Running", patience)

	b.Click(`a[href$="/console"]`)
	b.Has("#stream-state", "connected", patience)
	typeUntil(b, "disks\r", "berth-guest: disks: 1")
	b.Shot("console")
	b.Open("http://" + way.Host + "/machines/" + y.Namespace + "/web/screen")
	b.Has("#stream-state", "connected", patience)
	// A canvas that nobody has drawn on is 300 by 150 and transparent.
	b.Until(`(c => c && c.width >= 640 && c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 === 3 && v === 255))(document.querySelector("#screen canvas"))`, patience)
	b.Shot("screen")

	askToStop(b, "http://"+way.Host+"/machines/"+y.Namespace+"/web")
	b.Has("#state", "Stopped", boot)
	b.Calm(way.Host)
}

// askToStop asks until it is taken: the API behind the page may be starting again, because another test ended it. Then the page says so.
func askToStop(b *browser.Browser, page string) {
	b.T.Helper()
	for end := time.Now().Add(patience); ; {
		b.Open(page)
		b.Click("#act-stop")
		b.Until(`!document.querySelector("#said").hidden`, patience)
		said := b.Text("#said")
		if strings.Contains(said, "Asked to stop.") {
			return
		}
		if time.Now().After(end) || !strings.Contains(said, "currently unable to handle the request") {
			b.T.Fatalf("asked to stop, the page says %q", said)
		}
	}
}

// typeUntil types a line in the terminal again and again until the guest answers: one that still boots is deaf.
func typeUntil(b *browser.Browser, line, want string) {
	b.T.Helper()
	shown := fmt.Sprintf(`Array.from({length: berthTerminal.buffer.active.length}, (_, i) => berthTerminal.buffer.active.getLine(i).translateToString()).join("\n").includes(%q)`, want)
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for end := time.Now().Add(boot); time.Now().Before(end); <-tick.C {
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
// connection is lost on the way, and the upload goes on where it was.
func TestWebUpload(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	b, way := openPage(y)
	b.Open("http://" + way.Host + "/volumes")
	b.Until(`document.body.dataset.ready`, patience)
	const size = 24
	path := file(t, "dropped.img", image(size))
	way.Slow(2 << 20)
	b.Drop("#drop", path)
	b.Until(`document.querySelector("#upload-ask").open`, patience)
	b.Fill("#upload-ask [name=namespace]", y.Namespace)
	b.Fill("#upload-ask [name=class]", classWaits)
	b.Click("#upload-ask .main")
	b.Has("#uploads", "held", boot)
	b.Shot("held")
	b.Click("#uploads form button")
	b.Until(`document.querySelector("#uploads progress").value > 20`, boot)
	b.Shot("upload")
	b.Has(`[data-list=rows]`, "UploadReady", patience)
	way.Cut()
	b.Has("#uploads", "it goes on in", patience)
	way.Mend()
	b.Has("#uploads", "sent; the cluster makes a disk of it.", boot)
	y.Wait("the volume to be filled", boot, func(ctx context.Context) (bool, string) {
		var dv cdiv1.DataVolume
		dv.Namespace, dv.Name = y.Namespace, "dropped"
		err := y.kube.Get(ctx, client.ObjectKeyFromObject(&dv), &dv)
		return err == nil && dv.Status.Phase == cdiv1.Succeeded, fmt.Sprint(dv.Status.Phase, err)
	})
	b.Has(`[id="disk/`+y.Namespace+`/dropped"]`, "Succeeded", patience)
	b.Calm(way.Host)
}

// TestWebSignIn: the page of config/web in the cluster. Somebody signs in with a token that may read one namespace, sees the machine in it
// and cannot start it; the pod itself has no token.
func TestWebSignIn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.kubectl("-n", "berth", "apply", "--server-side", "--force-conflicts", "-k", "../../config/web")
	t.Cleanup(func() {
		cmd := exec.Command("../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(t), "delete", "--ignore-not-found", "--wait=false", "-k", "../../config/web")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	y.kubectl("create", "serviceaccount", "looker")
	y.kubectl("create", "role", "looker", "--verb=get,list,watch", "--resource=virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io,persistentvolumeclaims,pods")
	y.kubectl("create", "rolebinding", "looker", "--role=looker", "--serviceaccount="+y.Namespace+":looker")
	vm := y.machine("seen")
	vm.Spec.RunStrategy, vm.Spec.Running = new(kubevirt.RunHalted), nil
	y.create(vm)
	token := strings.TrimSpace(y.kubectl("create", "token", "looker"))
	y.kubectl("-n", "berth", "rollout", "status", "deployment/berth-web", "--timeout=3m")
	mounts := y.kubectl("-n", "berth", "get", "pods", "-l", "app.kubernetes.io/component=web", "-o", "jsonpath={.items[*].spec.volumes[*].projected}")
	if strings.TrimSpace(mounts) != "" {
		t.Errorf("the pod has a token: %s", mounts)
	}
	port := freePort(t)
	ctx, cancel := context.WithCancel(y.Context())
	forward := exec.CommandContext(ctx, "../../bin/kubectl", "--kubeconfig", framework.Kubeconfig(t), "-n", "berth", "port-forward", "service/berth-web", fmt.Sprintf("%d:443", port))
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = forward.Wait() })
	base := fmt.Sprintf("https://127.0.0.1:%d", port)
	y.Wait("the page", patience, func(ctx context.Context) (bool, string) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil, fmt.Sprint(err)
	})
	b := browser.New(t)
	b.Open(base + "/volumes") // which leads to the door
	b.Until(`location.pathname === "/sign-in"`, patience)
	b.Fill("[name=token]", "made-up")
	b.Click("form .main")
	b.Has("[role=alert]", "does not know this token", patience)
	b.Fill("[name=token]", token)
	b.Fill("[name=namespace]", y.Namespace)
	b.Click("form .main")
	b.Has("[data-list=columns]", "seen", patience)
	b.Has("[data-list=foot]", "nodes", patience)
	b.Shot("sign-in")
	b.Open(base + "/machines/" + y.Namespace + "/seen")
	b.Click("#act-start")
	b.Has("#said", "forbidden", patience)
	b.Click("nav form button")
	b.Until(`location.pathname === "/sign-in"`, patience)
	b.Open(base + "/")
	b.Until(`location.pathname === "/sign-in"`, patience)
}
