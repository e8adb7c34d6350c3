//go:build apiserver

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/web"
	"github.com/berth-vm/berth/test/browser"
)

// lines collects the output of a command, for a test that reads it meanwhile.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

var printed = regexp.MustCompile(`http://\S+`)

// startWeb runs virtctl web with the rights of a configuration, and returns the address that it prints.
func startWeb(t *testing.T, config *rest.Config, namespace string) string {
	t.Helper()
	c, err := kube.New(rest.CopyConfig(config), namespace)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, out := make(chan error, 1), &lines{}
	go func() { ended <- web.Run(ctx, c, web.Options{}, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("virtctl web: %v", err)
		}
	})
	eventually(t, "the address of the page", func() (bool, error) { return printed.MatchString(out.String()), nil })
	return printed.FindString(out.String())
}

// space is a namespace for one test.
func space(t *testing.T, name string) {
	t.Helper()
	create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// say writes what controllers would into an object's status.
func say(t *testing.T, u *unstructured.Unstructured, status string) {
	t.Helper()
	var said any
	if err := json.Unmarshal([]byte(status), &said); err != nil {
		t.Fatal(err)
	}
	patch, _ := json.Marshal(map[string]any{"status": said})
	if err := admin.Status().Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
}

const evil = `<img src=x onerror=document.title=/pwned/.source><script>document.title="pwned"</script>`

// TestWeb: the page in a real browser, with objects of a real API server: it shows what is there and why something waits, changes
// as the objects do, shows text of users as text, asks nothing of another host, and fits a telephone and a wall.
func TestWeb(t *testing.T) {
	space(t, "look")
	vm := object(`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: web, namespace: look}, spec: {runStrategy: Halted, template: {spec: {
		domain: {memory: {guest: 256Mi}, devices: {disks: [{name: root, disk: {bus: virtio}}]}}, volumes: [{name: root, dataVolume: {name: web-root}}]}}}}`)
	create(t, admin, vm)
	dv := object(`{kind: DataVolume, metadata: {name: web-root, namespace: look}, spec: {source: {http: {url: "http://example.org/x"}}, storage: {resources: {requests: {storage: 1Gi}}}}}`)
	create(t, admin, dv)
	address := startWeb(t, baseCfg, "look")
	host := strings.Split(strings.TrimPrefix(address, "http://"), "/")[0]
	b := browser.New(t)

	b.Open(address)
	b.Has("[data-list=columns]", "web", patience)
	if at := b.Text("body"); strings.Contains(at, "secret") {
		t.Errorf("the secret is shown: %s", at)
	}
	say(t, vm, `{"printableStatus": "Provisioning", "conditions": [{"type": "Ready", "status": "False", "reason": "NotAllDVsReady",
		"message": "waiting for its disks: DataVolume web-root is ImportInProgress", "lastTransitionTime": "2026-11-15T12:00:00Z"}]}`)
	say(t, dv, `{"phase": "ImportInProgress", "progress": "42.00%", "restartCount": 2, "conditions": [{"type": "Ready", "status": "False", "reason": "TransferRunning",
		"message": "try 3, after try 2 failed: 404 `+"`<b>`"+`", "lastHeartbeatTime": "2026-11-15T12:00:00Z", "lastTransitionTime": "2026-11-15T12:00:00Z"}]}`)
	b.Has(".waits", "waiting for its disks: DataVolume web-root is ImportInProgress", patience)
	b.Has(".waits", "42 %", patience)
	b.Shot("apiserver-overview")

	// Text of users is shown as text everywhere.
	say(t, dv, `{"conditions": [{"type": "Ready", "status": "False", "reason": "Error", "message": `+quote(evil)+`, "lastHeartbeatTime": "2026-11-15T12:00:00Z", "lastTransitionTime": "2026-11-15T12:00:00Z"}]}`)
	b.Has(".waits", "<script>", patience)
	base := "http://" + host
	for _, page := range []string{"/", "/volumes", "/machines/look/web", "/machines/look/" + url.PathEscape(evil), "/new", "/images", "/classes"} {
		b.Open(base + page)
		if strings.HasPrefix(page, "/machines/look/web") || page == "/volumes" {
			b.Has("main", "<script>", patience)
		}
		b.Until(`document.readyState === "complete" && document.title !== "pwned"`, patience)
		for _, width := range []int64{360, 1280, 3840} {
			b.Size(width, 900, width == 3840)
			b.Until(`document.documentElement.scrollWidth <= innerWidth`, patience)
		}
	}
	b.Size(1280, 900, false)

	// A machine that is gone goes from the page; one that is there again comes back. Its backups are moments with a button.
	kept := object(`{apiVersion: backup.kubevirt.io/v1alpha1, kind: VirtualMachineBackup, metadata: {name: first, namespace: look},
		spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: web}, pvcName: backups}}`)
	create(t, admin, kept)
	say(t, kept, `{"type": "Full", "checkpointName": "b1", "conditions": [{"type": "Complete", "status": "True", "reason": "Completed", "message": "", "lastTransitionTime": "2026-11-15T12:00:00Z"}]}`)
	b.Open(base + "/machines/look/web")
	b.Has("main", "What it is made of", patience)
	b.Has("[data-backup=first]", "Make a machine of it", patience)
	if err := admin.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	b.Has("main", "There is no machine look/web", patience)
	b.Calm(host)
}

// TestWebKeyboard: everything is reached with the tabulator, and one sees where one is.
func TestWebKeyboard(t *testing.T) {
	space(t, "keys")
	address := startWeb(t, baseCfg, "keys")
	b := browser.New(t)
	b.Open(address)
	b.Until(`document.body.dataset.ready`, patience)
	b.Do(chromedp.Navigate(strings.Split(address, "/enter")[0] + "/new"))
	b.Until(`document.querySelector("#new")`, patience)
	reached := map[string]bool{}
	for range 30 {
		b.Do(chromedp.KeyEvent("\t"))
		var what string
		b.Do(chromedp.Evaluate(`(e => e.name || e.id || e.textContent.trim())(document.activeElement)`, &what))
		reached[what] = true
	}
	for _, want := range []string{"Skip to the content", "Volumes", "New machine", "name", "namespace", "source", "url", "size", "class", "node", "memory", "user", "key", "start", "apply", "copy", "manifest"} {
		if !reached[want] {
			t.Errorf("the keyboard does not reach %s: %v", want, reached)
		}
	}
}

// TestWebForm: the form writes the manifest as it is filled in, says what is wrong, and makes the machine.
func TestWebForm(t *testing.T) {
	space(t, "form")
	address := startWeb(t, baseCfg, "form")
	b := browser.New(t)
	b.Open(address)
	b.Until(`document.body.dataset.ready`, patience)
	b.Click("nav .button")
	b.Until(`document.querySelector("#new")`, patience)
	b.Fill("[name=name]", "fresh")
	b.Choose("[name=source]", "http")
	b.Fill("[name=url]", "https://example.org/fedora.qcow2")
	b.Has("#new-wrong", "size is missing", patience)
	b.Fill("[name=size]", "2Gi")
	b.Fill("[name=user]", "fedora")
	b.Fill("[name=key]", "ssh-ed25519 AAAA me")
	b.Has("#manifest", "url: https://example.org/fedora.qcow2", patience)
	b.Has("#manifest", "ssh_authorized_keys", patience)
	b.Has("#manifest", "storage: 2Gi", patience)
	b.Shot("apiserver-new")
	b.Click("#apply")
	b.Until(`location.pathname === "/machines/form/fresh"`, patience)
	b.Has("main h1", "fresh", patience)
	made := object(`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: fresh, namespace: form}}`)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil {
		t.Fatal(err)
	}
	// The same once more is refused, and nothing else is made.
	b.Open(strings.Split(address, "/enter")[0] + "/new")
	b.Fill("[name=name]", "fresh")
	b.Choose("[name=source]", "containerdisk")
	b.Fill("[name=url]", "example.org/disk:1")
	b.Has("#manifest", "containerDisk", patience)
	b.Click("#apply")
	b.Has("#new-wrong", "already exists", patience)
}

// TestWebRights: a person sees what they may read, and is told what they may not.
func TestWebRights(t *testing.T) {
	as := rest.CopyConfig(baseCfg)
	as.Impersonate.UserName = "alice" // who may do anything in team, and read no nodes
	vm := object(`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: alices, namespace: team}, spec: {runStrategy: Halted, template: {spec: {
		domain: {memory: {guest: 256Mi}, devices: {}}}}}}`)
	create(t, admin, vm)
	address := startWeb(t, as, team)
	b := browser.New(t)
	b.Open(address)
	b.Has("[data-list=columns]", "alices", patience)
	b.Has("[data-list=foot]", "nodes", patience)
	// What she may not do is said by the cluster, in its words.
	answer := post(t, b, "/new", `{"namespace": "golden", "name": "x", "source": "containerdisk", "url": "x", "start": true}`)
	if !strings.Contains(answer, "forbidden") {
		t.Errorf("a machine in another namespace: %s", answer)
	}
}

// post asks as the page would.
func post(t *testing.T, b *browser.Browser, path, body string) string {
	t.Helper()
	b.Do(chromedp.Evaluate(fmt.Sprintf(`globalThis.answer = ""; fetch(%q, {method: "POST", body: %q}).then(a => a.text()).then(t => { globalThis.answer = t })`, path, body), nil))
	b.Until("globalThis.answer", patience)
	var text string
	b.Do(chromedp.Evaluate("globalThis.answer", &text))
	return text
}

func quote(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

// TestWebToken: a person signs in with a token that the cluster knows, looks, and leaves.
func TestWebToken(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended, out := make(chan error, 1), &lines{}
	go func() { ended <- web.RunSignIn(ctx, baseCfg, web.SignIn{Listen: "127.0.0.1:0"}, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("virtctl web --sign-in: %v", err)
		}
	})
	at := regexp.MustCompile(`https://\S+`)
	eventually(t, "the address of the page", func() (bool, error) { return at.MatchString(out.String()), nil })
	base := at.FindString(out.String())
	b := browser.New(t)
	b.Open(base + "/volumes") // which leads to the door
	b.Until(`location.pathname === "/sign-in"`, patience)
	b.Fill("[name=token]", "made-up")
	b.Click("form .main")
	b.Has("[role=alert]", "does not know this token", patience)
	b.Fill("[name=token]", adminToken)
	b.Click("form .main")
	b.Until(`document.body.dataset.ready`, patience)
	b.Click("nav form button")
	b.Until(`location.pathname === "/sign-in"`, patience)
	b.Open(base + "/")
	b.Until(`location.pathname === "/sign-in"`, patience)
	b.Calm(strings.TrimPrefix(base, "https://"))
}
