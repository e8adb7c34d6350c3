package aggregated

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"
	uploadv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/token"
)

// world is a cluster with at most one of each.
type world struct {
	claim      *corev1.PersistentVolumeClaim
	machine    *kubevirt.VirtualMachine
	instance   *kubevirt.VirtualMachineInstance
	carried    []Change
	conflicts  int // how many changes are refused first
	said       launcherapi.Said
	away       error // of the launcher
	migrations []kubevirt.VirtualMachineInstanceMigration
	asked      []string // verbs
	evacuation string
	pod        *corev1.Pod
	kinds      map[string]string // instance types and preferences by kind/namespace/name, and revisions by name
	guest      net.Conn          // the guest's end of what was opened
	plays      func(net.Conn)
}

// Ask returns a launcher that says the same to everything.
func (w *world) Ask(_ context.Context, _ *kubevirt.VirtualMachineInstance, verb string) (launcherapi.Said, error) {
	w.asked = append(w.asked, verb)
	return w.said, w.away
}

func (w *world) Open(_ context.Context, _ *kubevirt.VirtualMachineInstance, verb, what string) (io.ReadWriteCloser, launcherapi.Said, error) {
	w.asked = append(w.asked, strings.TrimSpace(verb+" "+what))
	if w.said.Refused != "" || w.away != nil {
		return nil, w.said, w.away
	}
	user, guest := net.Pipe()
	w.guest = guest
	if w.plays != nil {
		go w.plays(guest)
	}
	return user, w.said, nil
}

func (w *world) Evacuation(context.Context, *kubevirt.VirtualMachineInstance) (string, error) {
	return w.evacuation, nil
}

func (w *world) Launcher(context.Context, *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	return w.pod, nil
}

func (w *world) Instancetype(_ context.Context, kind, namespace, name string) ([]byte, error) {
	text, ok := w.kinds[kind+"/"+namespace+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(machines, name)
	}
	return []byte(text), nil
}

func (w *world) Revision(_ context.Context, _, name string) (*appsv1.ControllerRevision, error) {
	text, ok := w.kinds[name]
	if !ok {
		return nil, apierrors.NewNotFound(machines, name)
	}
	return &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(text)}}, nil
}

func found[T any](o *T, name string) (*T, error) {
	if o == nil {
		return nil, apierrors.NewNotFound(machines, name)
	}
	return o, nil
}

func (w *world) Claim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return found(w.claim, name)
}

func (w *world) Machine(_ context.Context, _, name string) (*kubevirt.VirtualMachine, error) {
	return found(w.machine, name)
}

func (w *world) Instance(_ context.Context, _, name string) (*kubevirt.VirtualMachineInstance, error) {
	return found(w.instance, name)
}

func (w *world) Migrations(context.Context, string) ([]kubevirt.VirtualMachineInstanceMigration, error) {
	return w.migrations, nil
}

func (w *world) Carry(_ context.Context, c Change) error {
	if w.conflicts > 0 {
		w.conflicts--
		return apierrors.NewConflict(machines, "vm", errors.New("it changed"))
	}
	w.carried = append(w.carried, c)
	return nil
}

// Console echoes in capitals until the user has gone.
func (w *world) Console(_ context.Context, _ *kubevirt.VirtualMachineInstance, in io.Reader, out io.Writer) error {
	buf := make([]byte, 100)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return nil
		}
		if _, err := out.Write(bytes.ToUpper(buf[:n])); err != nil {
			return err
		}
	}
}

func vm(s kubevirt.RunStrategy) *kubevirt.VirtualMachine {
	return &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: "ns"}, Spec: kubevirt.VirtualMachineSpec{
		RunStrategy: &s, Template: &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: kubevirt.VirtualMachineInstanceSpec{
			Volumes: []kubevirt.Volume{{Name: "root"}},
		}},
	}, Status: kubevirt.VirtualMachineStatus{PrintableStatus: kubevirt.StatusRunning}}
}

func vmi(p kubevirt.Phase) *kubevirt.VirtualMachineInstance {
	return &kubevirt.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: "ns", UID: "u1"}, Status: kubevirt.VirtualMachineInstanceStatus{Phase: p},
		Spec: kubevirt.VirtualMachineInstanceSpec{Volumes: []kubevirt.Volume{
			{Name: "root"}, {Name: "extra", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "dv", Hotpluggable: true}}},
		}, Domain: kubevirt.DomainSpec{Devices: kubevirt.Devices{Disks: []kubevirt.Disk{{Name: "root"}, {Name: "extra"}}}}},
	}
}

// copied returns a guest with a copy of an image, which is being kept in a claim or was.
func copied(claim string, reason ...string) *kubevirt.VirtualMachineInstance {
	i := vmi(kubevirt.PhaseRunning)
	i.Spec.Volumes[1] = kubevirt.Volume{Name: "image", KeepAs: claim, VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "i"}}}
	for _, r := range reason {
		i.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "image", Copy: &kubevirt.CopyStatus{Keep: &kubevirt.KeepStatus{ClaimName: claim, Reason: r}}}}
	}
	return i
}

func serve(t *testing.T, w *world) *httptest.Server {
	t.Helper()
	s := &Server{Cluster: w, Log: slog.New(slog.DiscardHandler), Version: version.Info{GitVersion: "v1"},
		Key: func(time.Time) (ed25519.PrivateKey, error) { return testKey, nil }}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	return h
}

var testKey = ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", ed25519.SeedSize)))

func send(t *testing.T, s *httptest.Server, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

const base = "/apis/subresources.kubevirt.io/v1/namespaces/ns/"

// steps returns a change as the patches it becomes.
func steps(c Change) string {
	var all []string
	for _, part := range [][]cluster.Operation{c.InstanceSteps(), c.StatusSteps(), c.MachineSteps()} {
		for _, op := range part {
			text, _ := json.Marshal(op.Value)
			all = append(all, op.Path+"="+string(text))
		}
	}
	return strings.Join(all, " ")
}

func TestVerbs(t *testing.T) {
	running, off := vmi(kubevirt.PhaseRunning), (*kubevirt.VirtualMachineInstance)(nil)
	old := vm(kubevirt.RunHalted)
	old.Spec.RunStrategy, old.Spec.Running = nil, ptr.To(false)
	fresh := vm(kubevirt.RunManual)
	fresh.Status = kubevirt.VirtualMachineStatus{}
	probed := vm(kubevirt.RunManual)
	probed.Spec.Template.Spec.LivenessProbe = &kubevirt.Probe{}
	withAdded := vm(kubevirt.RunAlways)
	withAdded.Spec.VolumeClaimTemplates = []kubevirt.VolumeClaimTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "own"}}}
	withAdded.Spec.Template.Spec.Volumes = append(running.DeepCopy().Spec.Volumes, kubevirt.Volume{Name: "own", VolumeSource: kubevirt.VolumeSource{
		PersistentVolumeClaim: &kubevirt.ClaimSource{Name: "own"}}})
	const add = `{"name":"new","disk":{"name":"other"},"volumeSource":{"dataVolume":{"name":"dv2"}}}`
	for name, row := range map[string]struct {
		machine  *kubevirt.VirtualMachine
		instance *kubevirt.VirtualMachineInstance
		path     string
		body     string
		status   int
		want     string // the patches, or words of the refusal
	}{
		"start a halted one":         {vm(kubevirt.RunHalted), off, "virtualmachines/vm/start", "", 202, `/spec/runStrategy="Always"`},
		"start of the older form":    {old, off, "virtualmachines/vm/start", "{}", 202, `/spec/running=true`},
		"start a manual one":         {vm(kubevirt.RunManual), off, "virtualmachines/vm/start", "", 202, `/status/stateChangeRequests=[{"action":"Start"}]`},
		"start one nobody has seen":  {fresh, off, "virtualmachines/vm/start", "", 202, `/status={"stateChangeRequests":[{"action":"Start"}]}`},
		"start one that ended":       {vm(kubevirt.RunManual), vmi(kubevirt.PhaseSucceeded), "virtualmachines/vm/start", "", 202, `/status/stateChangeRequests=[{"action":"Start"}]`},
		"start one that runs":        {vm(kubevirt.RunManual), running, "virtualmachines/vm/start", "", 409, "VM is already running"},
		"start one that always runs": {vm(kubevirt.RunAlways), off, "virtualmachines/vm/start", "", 409, "Always does not support manual start requests"},
		"start a manual one paused": {vm(kubevirt.RunManual), off, "virtualmachines/vm/start", `{"paused":true}`, 202,
			`/status/stateChangeRequests=[{"action":"Start","data":{"paused":"true"}}]`},
		"start a halted one paused": {vm(kubevirt.RunHalted), off, "virtualmachines/vm/start", `{"paused":true}`, 202,
			`/status/stateChangeRequests=[{"action":"Start","data":{"paused":"true"}}]`},
		"start one with a probe paused": {probed, off, "virtualmachines/vm/start", `{"paused":true}`, 403, "LivenessProbe"},
		"start, dry":                    {vm(kubevirt.RunHalted), off, "virtualmachines/vm/start", `{"dryRun":["All"]}`, 202, ""},
		"start, half dry":               {vm(kubevirt.RunHalted), off, "virtualmachines/vm/start", `{"dryRun":["Some"]}`, 400, "dryRun"},
		"start nothing":                 {nil, off, "virtualmachines/vm/start", "", 404, "not found"},
		"start with nonsense":           {vm(kubevirt.RunHalted), off, "virtualmachines/vm/start", "{", 400, "cannot be read"},
		"stop one that always runs": {vm(kubevirt.RunAlways), running, "virtualmachines/vm/stop", `{"gracePeriod":5}`, 202,
			`/spec/terminationGracePeriodSeconds=5 /spec/runStrategy="Halted"`},
		"stop a manual one":     {vm(kubevirt.RunManual), running, "virtualmachines/vm/stop", "", 202, `/status/stateChangeRequests=[{"action":"Stop","uid":"u1"}]`},
		"stop one that is off":  {vm(kubevirt.RunManual), off, "virtualmachines/vm/stop", "", 409, "VM is not running"},
		"stop a halted one":     {vm(kubevirt.RunHalted), off, "virtualmachines/vm/stop", "", 409, "VM is not running"},
		"stop with a bad grace": {vm(kubevirt.RunManual), running, "virtualmachines/vm/stop", `{"gracePeriod":-1}`, 400, "negative"},
		"restart": {vm(kubevirt.RunAlways), running, "virtualmachines/vm/restart", "", 202,
			`/status/stateChangeRequests=[{"action":"Stop","uid":"u1"},{"action":"Start"}]`},
		"restart a halted one":    {vm(kubevirt.RunHalted), running, "virtualmachines/vm/restart", "", 409, "Halted does not support"},
		"restart one that is off": {vm(kubevirt.RunAlways), off, "virtualmachines/vm/restart", "", 409, "VM is not running"},
		"unknown verb":            {vm(kubevirt.RunAlways), off, "virtualmachines/vm/explode", "", 404, "explode"},
		"add for good": {vm(kubevirt.RunAlways), running, "virtualmachines/vm/addvolume", add, 202,
			`/status/volumeRequests=[{"addVolumeOptions":{"name":"new","disk":{"name":"other"},"volumeSource":{"dataVolume":{"name":"dv2"}}}}]`},
		"add what is there": {vm(kubevirt.RunAlways), running, "virtualmachines/vm/addvolume", strings.Replace(add, "new", "root", 1), 409,
			"Unable to add volume [root] because volume with that name already exists"},
		"add without a disk":       {vm(kubevirt.RunAlways), running, "virtualmachines/vm/addvolume", `{"name":"new"}`, 400, "requires disk"},
		"add without a name":       {vm(kubevirt.RunAlways), running, "virtualmachines/vm/addvolume", `{}`, 400, "requires name"},
		"remove what is not there": {vm(kubevirt.RunAlways), running, "virtualmachines/vm/removevolume", `{"name":"new"}`, 409, "does not exist"},
		"remove for good": {withAdded, running, "virtualmachines/vm/removevolume", `{"name":"extra"}`, 202,
			`/status/volumeRequests=[{"removeVolumeOptions":{"name":"extra"}}]`},
		"remove the root for good": {vm(kubevirt.RunAlways), running, "virtualmachines/vm/removevolume", `{"name":"root"}`, 409,
			"Unable to remove volume [root] because it is not hotpluggable"},
		"add a claim that is there": {withAdded, running, "virtualmachines/vm/addvolume", strings.Replace(add, "dv2", "dv", 1), 409,
			"Unable to add volume source [dv] because it already exists"},
		"add the claim of a template": {withAdded, running, "virtualmachines/vm/addvolume",
			`{"name":"new","disk":{},"volumeSource":{"persistentVolumeClaim":{"claimName":"vm-own"}}}`, 409, "Unable to add volume source [vm-own] because it already exists"},
		"add a claim to a run that has it": {nil, running, "virtualmachineinstances/vm/addvolume",
			`{"name":"new","disk":{},"volumeSource":{"persistentVolumeClaim":{"claimName":"dv"}}}`, 409, "Unable to add volume source [dv] because it already exists"},
		"dump memory":        {vm(kubevirt.RunAlways), running, "virtualmachines/vm/memorydump", `{"claimName":"c"}`, 400, "memory dumps are not supported"},
		"remove memory dump": {vm(kubevirt.RunAlways), running, "virtualmachines/vm/removememorydump", `{}`, 400, "memory dumps are not supported"},
		"add for this run": {nil, running, "virtualmachineinstances/vm/addvolume", add, 202,
			`/spec/volumes=[{"name":"root"},{"name":"extra","dataVolume":{"name":"dv","hotpluggable":true}},{"name":"new","dataVolume":{"name":"dv2","hotpluggable":true}}]` +
				` /spec/domain/devices/disks=[{"name":"root"},{"name":"extra"},{"name":"new"}]`},
		"add a network disk": {nil, running, "virtualmachineinstances/vm/addvolume",
			`{"name":"new","disk":{},"accessMode":"read-shared","volumeSource":{"nbd":{"host":{"name":"h","port":"10809"}}}}`, 202,
			`/spec/volumes=[{"name":"root"},{"name":"extra","dataVolume":{"name":"dv","hotpluggable":true}},{"name":"new","nbd":{"host":{"name":"h","port":10809}},"accessMode":"read-shared","hotpluggable":true}]` +
				` /spec/domain/devices/disks=[{"name":"root"},{"name":"extra"},{"name":"new"}]`},
		"add two at once": {nil, running, "virtualmachineinstances/vm/addvolume",
			`{"name":"new","disk":{},"volumeSource":{"nbd":{"host":{"name":"h"}},"dataVolume":{"name":"dv2"}}}`, 400, "takes one volumeSource"},
		"remove from this run": {nil, running, "virtualmachineinstances/vm/removevolume", `{"name":"extra"}`, 202,
			`/spec/volumes=[{"name":"root"}] /spec/domain/devices/disks=[{"name":"root"}]`},
		"remove the root":           {nil, running, "virtualmachineinstances/vm/removevolume", `{"name":"root"}`, 409, "not hotpluggable"},
		"add to one that is off":    {nil, vmi(kubevirt.PhaseScheduling), "virtualmachineinstances/vm/addvolume", add, 409, "VMI is not running"},
		"keep a copy":               {nil, copied(""), "virtualmachineinstances/vm/keep", `{"name":"image","claimName":"mine"}`, 202, `/spec/volumes=[{"name":"root"},{"name":"image","containerDisk":{"image":"i"},"keepAs":"mine"}]`},
		"keep it again":             {nil, copied("mine", "Writing"), "virtualmachineinstances/vm/keep", `{"name":"image","claimName":"mine"}`, 202, ""},
		"keep it elsewhere at once": {nil, copied("mine", "Writing"), "virtualmachineinstances/vm/keep", `{"name":"image","claimName":"other"}`, 409, "is being kept in claim [mine]"},
		"keep it elsewhere after":   {nil, copied("mine", "Failed"), "virtualmachineinstances/vm/keep", `{"name":"image","claimName":"other"}`, 202, `/spec/volumes=[{"name":"root"},{"name":"image","containerDisk":{"image":"i"},"keepAs":"other"}]`},
		"keep what is no copy":      {nil, copied(""), "virtualmachineinstances/vm/keep", `{"name":"root","claimName":"mine"}`, 409, "has no copy of volume [root]"},
		"keep what is not there":    {nil, copied(""), "virtualmachineinstances/vm/keep", `{"name":"none","claimName":"mine"}`, 409, "does not exist"},
		"keep of one that is off":   {nil, vmi(kubevirt.PhaseScheduling), "virtualmachineinstances/vm/keep", `{"name":"root","claimName":"mine"}`, 409, "VMI is not running"},
		"keep nowhere":              {nil, copied(""), "virtualmachineinstances/vm/keep", `{"name":"image"}`, 400, "requires name and claimName"},
		"unknown verb of a guest":   {nil, running, "virtualmachineinstances/vm/melt", "", 404, "melt"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{machine: row.machine, instance: row.instance}
			status, text := send(t, serve(t, w), http.MethodPut, base+row.path, row.body)
			if status != row.status {
				t.Fatalf("got %d %s, want %d", status, text, row.status)
			}
			if status != http.StatusAccepted {
				if !strings.Contains(text, row.want) || !strings.Contains(text, `"kind":"Status"`) || len(w.carried) > 0 {
					t.Errorf("got %s, want %q", text, row.want)
				}
				return
			}
			got := ""
			for _, c := range w.carried {
				got += steps(c)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestOutOfScope: a client that asks for something that Berth does not have is told so, in every version of the API group.
func TestOutOfScope(t *testing.T) {
	for pattern, why := range outOfScope {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{namespace}", "ns", "{name}", "vm").Replace(path)
		for _, v := range Subresources.Versions {
			status, text := send(t, serve(t, &world{}), method, "/apis/"+Subresources.Name+"/"+v+path, "")
			want, isStatus := http.StatusBadRequest, true
			if strings.HasSuffix(pattern, toolsPath) {
				want, isStatus = http.StatusNotImplemented, false
			}
			if status != want || !strings.Contains(text, "not supported: "+why) || strings.Contains(text, `"kind":"Status"`) != isStatus {
				t.Errorf("%s %s: %d %s", method, path, status, text)
			}
		}
	}
}

func TestConflictsAreWorkedOutAnew(t *testing.T) {
	w := &world{machine: vm(kubevirt.RunHalted), conflicts: 3}
	if status, text := send(t, serve(t, w), http.MethodPut, base+"virtualmachines/vm/start", ""); status != 202 || len(w.carried) != 1 {
		t.Errorf("got %d %s after %d changes", status, text, len(w.carried))
	}
	w = &world{machine: vm(kubevirt.RunHalted), conflicts: 100}
	if status, _ := send(t, serve(t, w), http.MethodPut, base+"virtualmachines/vm/start", ""); status != 409 {
		t.Errorf("got %d for a machine that never rests", status)
	}
}

func TestToken(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "u9"}}
	s := serve(t, &world{claim: claim})
	const path = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/ns/uploadtokenrequests"
	status, text := send(t, s, http.MethodPost, path, `{"metadata":{"name":"t"},"spec":{"pvcName":"disk"}}`)
	var got uploadv1.UploadTokenRequest
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != 201 || got.Name != "t" || got.Kind != "UploadTokenRequest" {
		t.Fatalf("got %d %s", status, text)
	}
	key := testKey.Public().(ed25519.PublicKey)
	is, err := token.VerifyUpload([]ed25519.PublicKey{key}, got.Status.Token, time.Now())
	if want := (token.Claim{Namespace: "ns", Name: "disk", UID: "u9"}); err != nil || is != want {
		t.Errorf("the token is for %+v (%v), want %+v", is, err, want)
	}
	if _, err := token.VerifyUpload([]ed25519.PublicKey{key}, got.Status.Token, time.Now().Add(tokenLasts)); !errors.Is(err, token.ErrUploadExpired) {
		t.Errorf("after its time: %v", err)
	}
	for body, want := range map[string]int{
		`{}`: 400, `{`: 400, `{"metadata":{"namespace":"other"},"spec":{"pvcName":"disk"}}`: 400, strings.Repeat(" ", bodyMax+1): 400,
	} {
		if status, text := send(t, s, http.MethodPost, path, body); status != want {
			t.Errorf("%.60s: got %d %s, want %d", body, status, text, want)
		}
	}
	if status, _ := send(t, serve(t, &world{}), http.MethodPost, path, `{"spec":{"pvcName":"none"}}`); status != 404 {
		t.Errorf("a claim that is not there: %d", status)
	}
	if _, text := send(t, s, http.MethodPost, path+"?dryRun=All", `{"spec":{"pvcName":"disk"}}`); strings.Contains(text, "token\":\"") {
		t.Errorf("a dry run grants a token: %s", text)
	}
}

func TestDiscovery(t *testing.T) {
	s := serve(t, &world{})
	for path, words := range map[string]string{
		"/apis/upload.cdi.kubevirt.io":              `"preferredVersion":{"groupVersion":"upload.cdi.kubevirt.io/v1beta1"`,
		"/apis/upload.cdi.kubevirt.io/v1beta1":      `"name":"uploadtokenrequests"`,
		"/apis/subresources.kubevirt.io":            `"subresources.kubevirt.io/v1alpha3"`,
		"/apis/subresources.kubevirt.io/v1":         `"virtualmachineinstances/console"`,
		"/apis/subresources.kubevirt.io/v1/version": `"gitVersion":"v1"`,
	} {
		if status, text := send(t, s, http.MethodGet, path, ""); status != 200 || !strings.Contains(text, words) {
			t.Errorf("%s: got %d %s", path, status, text)
		}
	}
	if status, text := send(t, s, http.MethodGet, base+"virtualmachines/vm/vnc", ""); status != 404 || !strings.Contains(text, `"kind":"Status"`) {
		t.Errorf("what is not there: %d %s", status, text)
	}
}

func TestConsole(t *testing.T) {
	s := serve(t, &world{instance: vmi(kubevirt.PhaseRunning)})
	address := strings.Replace(s.URL, "http", "ws", 1) + base + "virtualmachineinstances/vm/console"
	dialer := websocket.Dialer{Subprotocols: []string{plainProtocol}}
	conn, answer, err := dialer.DialContext(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := answer.Header.Get("Sec-WebSocket-Protocol"); got != plainProtocol {
		t.Errorf("the protocol is %q", got)
	}
	for _, text := range []string{"login: ", "exit\r"} {
		if err := conn.WriteMessage(websocket.BinaryMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != strings.ToUpper(text) {
			t.Errorf("got %q (%v)", got, err)
		}
	}
	off := serve(t, &world{instance: vmi(kubevirt.PhaseScheduling)})
	if status, text := send(t, off, http.MethodGet, base+"virtualmachineinstances/vm/console", ""); status != 409 || !strings.Contains(text, "VMI is not running") {
		t.Errorf("a guest that is off: %d %s", status, text)
	}
}
