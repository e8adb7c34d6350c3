package aggregated

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestPause: what was asked for is written down before the launcher is asked, and nothing is when nothing may happen.
func TestPause(t *testing.T) {
	noted := vmi(kubevirt.PhaseRunning)
	noted.Annotations = map[string]string{"a": "b"}
	probed := vmi(kubevirt.PhaseRunning)
	probed.Spec.LivenessProbe = &kubevirt.Probe{}
	// The machine says that its guest is paused, and the instance does not say yet that it runs.
	machine, begins, stranger := vm(kubevirt.RunAlways), vmi(kubevirt.PhaseScheduled), vmi(kubevirt.PhaseScheduled)
	machine.UID, machine.Status.PrintableStatus = "machine", kubevirt.StatusPaused
	begins.OwnerReferences = []metav1.OwnerReference{{UID: machine.UID, Controller: ptr.To(true)}}
	for name, row := range map[string]struct {
		world  *world
		verb   string
		body   string
		status int
		want   string // the patches, or words of the refusal
		asked  string
	}{
		"pause": {&world{instance: vmi(kubevirt.PhaseRunning)}, "pause", "", 202,
			`/metadata/annotations={"berth.dev/paused":"pausing"};/metadata/annotations={"berth.dev/paused":"true"};`, "pause"},
		"unpause": {&world{instance: noted}, "unpause", "{}", 202,
			`/metadata/annotations/berth.dev~1paused="unpausing";/metadata/annotations/berth.dev~1paused="false";`, "unpause"},
		"started a moment ago": {&world{machine: machine, instance: begins}, "unpause", "", 202,
			`/metadata/annotations={"berth.dev/paused":"unpausing"};/metadata/annotations={"berth.dev/paused":"false"};`, "unpause"},
		"not started, of a machine that ran before": {&world{machine: machine, instance: stranger}, "unpause", "", 409, "VMI is not running", ""},
		"dry":    {&world{instance: noted}, "pause", `{"dryRun":["All"]}`, 202, "", ""},
		"off":    {&world{instance: vmi(kubevirt.PhaseScheduling)}, "pause", "", 409, "VMI is not running", ""},
		"nobody": {&world{}, "pause", "", 404, "not found", ""},
		"probed": {&world{instance: probed}, "pause", "", 403, "Pausing VMIs with LivenessProbe is currently not supported", ""},
		"probed, unpause": {&world{instance: probed}, "unpause", "", 202,
			`/metadata/annotations={"berth.dev/paused":"unpausing"};/metadata/annotations={"berth.dev/paused":"false"};`, "unpause"},
		"twice": {&world{instance: noted, said: launcherapi.Said{Refused: "VMI is already paused"}}, "pause", "", 409, "VMI is already paused", "pause"},
		"no answer": {&world{instance: noted, away: errors.New("the launcher is away")}, "pause", "", 500,
			"the launcher is away", "pause"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := send(t, serve(t, row.world), http.MethodPut, base+"virtualmachineinstances/vm/"+row.verb, row.body)
			if status != row.status || strings.Join(row.world.asked, " ") != row.asked {
				t.Fatalf("got %d %s, asked %q", status, text, row.world.asked)
			}
			if status == http.StatusAccepted {
				text = ""
				for _, c := range row.world.carried {
					text += steps(c) + ";"
				}
				if text != row.want {
					t.Errorf("wrote %s, want %s", text, row.want)
				}
			} else if !strings.Contains(text, row.want) {
				t.Errorf("got %s, want %s", text, row.want)
			}
		})
	}
}

// TestInform: what the guest says is handed on as the kind that clients know, and a guest without an agent is refused in their words.
func TestInform(t *testing.T) {
	for verb, row := range map[string]struct{ answer, kind, want string }{
		"guestosinfo":    {`{"hostname":"h","os":{"prettyName":"Debian"},"surprise":1}`, "VirtualMachineInstanceGuestAgentInfo", `"hostname":"h"`},
		"filesystemlist": {`{"items":[{"diskName":"vda1","usedBytes":1}]}`, "VirtualMachineInstanceFileSystemList", `"diskName":"vda1"`},
		"userlist":       {`{"items":[{"userName":"root"}]}`, "VirtualMachineInstanceGuestOSUserList", `"userName":"root"`},
	} {
		path := base + "virtualmachineinstances/vm/" + verb
		w := &world{instance: vmi(kubevirt.PhaseRunning), said: launcherapi.Said{Answer: json.RawMessage(row.answer)}}
		status, text := send(t, serve(t, w), http.MethodGet, path, "")
		if status != 200 || !strings.Contains(text, `"kind":"`+row.kind+`"`) || !strings.Contains(text, row.want) || strings.Contains(text, "surprise") ||
			!slices.Equal(w.asked, []string{verb}) {
			t.Errorf("%s: %d %s (%q)", verb, status, text, w.asked)
		}
		w = &world{instance: vmi(kubevirt.PhaseRunning), said: launcherapi.Said{Refused: "libvirt's words", NoAgent: true}}
		if status, text := send(t, serve(t, w), http.MethodGet, path, ""); status != 409 || !strings.Contains(text, "VMI does not have guest agent connected") {
			t.Errorf("%s without an agent: %d %s", verb, status, text)
		}
		if status, _ := send(t, serve(t, &world{instance: vmi(kubevirt.PhaseSucceeded)}), http.MethodGet, path, ""); status != 409 {
			t.Errorf("%s of a guest that is off: %d", verb, status)
		}
	}
}

func dialed(t *testing.T, s *httptest.Server, path string) *websocket.Conn {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{plainProtocol}}
	conn, answer, err := dialer.DialContext(t.Context(), strings.Replace(s.URL, "http", "ws", 1)+base+path, nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if got := answer.Header.Get("Sec-WebSocket-Protocol"); got != plainProtocol {
		t.Errorf("the protocol is %q", got)
	}
	return conn
}

// TestStreams: a screen and a port are bytes both ways, and the guest's end is the end of the stream.
func TestStreams(t *testing.T) {
	for path, want := range map[string]string{
		"virtualmachineinstances/vm/vnc":                "vnc",
		"virtualmachineinstances/vm/portforward/22":     "forward tcp 22",
		"virtualmachineinstances/vm/portforward/80/TCP": "forward tcp 80",
		"virtualmachines/vm/portforward/0443/tcp":       "forward tcp 443",
	} {
		w := &world{instance: vmi(kubevirt.PhaseRunning)}
		conn := dialed(t, serve(t, w), path)
		if !slices.Equal(w.asked, []string{want}) {
			t.Errorf("%s asks %q", path, w.asked)
		}
		if err := conn.WriteMessage(websocket.BinaryMessage, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		heard := make([]byte, 5)
		if _, err := io.ReadFull(w.guest, heard); err != nil || string(heard) != "hello" {
			t.Fatalf("%s: the guest heard %q (%v)", path, heard, err)
		}
		go func() {
			_, _ = w.guest.Write([]byte("bye"))
			_ = w.guest.Close()
		}()
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != "bye" {
			t.Errorf("%s: got %q (%v)", path, got, err)
		}
		if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			t.Errorf("%s ends with %v", path, err)
		}
	}
}

// TestScreenshot: the launcher's picture comes as it is, and no more of it than a picture can have.
func TestScreenshot(t *testing.T) {
	shot := base + "virtualmachineinstances/vm/vnc/screenshot"
	picture := "\x89PNG\r\n\x1a\n and what no one here decodes"
	w := &world{instance: vmi(kubevirt.PhaseRunning), plays: func(c net.Conn) {
		_, _ = io.WriteString(c, picture)
		_ = c.Close()
	}}
	status, text := send(t, serve(t, w), http.MethodGet, shot+"?moveCursor=true", "")
	if status != http.StatusOK || text != picture || !slices.Equal(w.asked, []string{"screenshot awake"}) {
		t.Errorf("got %d %q, asked %q", status, text, w.asked)
	}
	w = &world{instance: vmi(kubevirt.PhaseRunning), plays: func(c net.Conn) {
		_, _ = io.WriteString(c, picture)
		for _, err := c.Write(make([]byte, 1<<20)); err == nil; {
			_, err = c.Write(make([]byte, 1<<20))
		}
	}}
	status, text = send(t, serve(t, w), http.MethodGet, shot, "")
	if status != http.StatusOK || len(text) < launcherapi.MostPicture || len(text) > launcherapi.MostPicture+8 || !slices.Equal(w.asked, []string{"screenshot still"}) {
		t.Errorf("got %d and %d bytes, asked %q", status, len(text), w.asked)
	}
}

// TestDatagrams: each message is one datagram, whatever the streams on the way make of it.
func TestDatagrams(t *testing.T) {
	w := &world{instance: vmi(kubevirt.PhaseRunning)}
	conn := dialed(t, serve(t, w), "virtualmachineinstances/vm/portforward/53/udp")
	for _, text := range []string{"one", ""} {
		if err := conn.WriteMessage(websocket.BinaryMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, 2+len(text))
		if _, err := io.ReadFull(w.guest, frame); err != nil || int(binary.BigEndian.Uint16(frame)) != len(text) || string(frame[2:]) != text {
			t.Fatalf("the guest heard %q (%v)", frame, err)
		}
	}
	go func() { _, _ = w.guest.Write([]byte("\x00\x03two\x00\x05three")) }()
	for _, want := range []string{"two", "three"} {
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != want {
			t.Errorf("got %q (%v), want %q", got, err, want)
		}
	}
}

// TestStreamsRefused: nothing is opened that is no port of the guest, and why not is said before the stream begins.
func TestStreamsRefused(t *testing.T) {
	running := vmi(kubevirt.PhaseRunning)
	for path, row := range map[string]struct {
		world  *world
		status int
		want   string
		asked  int
	}{
		"vnc":                                      {&world{instance: running, said: launcherapi.Said{Refused: "the machine has no screen"}}, 409, "the machine has no screen", 1},
		"vnc/screenshot":                           {&world{instance: running, said: launcherapi.Said{Refused: "the machine has no screen"}}, 409, "the machine has no screen", 1},
		"vnc/screenshot?moveCursor=true":           {&world{instance: vmi(kubevirt.PhaseScheduled)}, 409, "VMI is not running", 0},
		"vnc/screenshot?":                          {&world{instance: running, plays: func(c net.Conn) { _ = c.Close() }}, 500, "take a picture of the screen", 1},
		"vnc/screenshot?moveCursor=no":             {&world{instance: running, plays: func(c net.Conn) { _, _ = io.WriteString(c, "<html><script>"); _ = c.Close() }}, 500, "does not answer with one", 1},
		"portforward/22/tcp":                       {&world{instance: vmi(kubevirt.PhaseScheduled)}, 409, "VMI is not running", 0},
		"portforward/23":                           {&world{instance: running, away: errors.New("away")}, 500, "away", 1},
		"portforward/0":                            {&world{instance: running}, 400, "not between 1 and 65535", 0},
		"portforward/65536":                        {&world{instance: running}, 400, "not between 1 and 65535", 0},
		"portforward/22%20tcp%2080":                {&world{instance: running}, 400, "not between", 0},
		"portforward/22/sctp":                      {&world{instance: running}, 400, "neither tcp nor udp", 0},
		"portforward/22/tcp%0Aforward":             {&world{instance: running}, 400, "neither tcp nor udp", 0},
		"portforward/" + strings.Repeat("9", 1000): {&world{instance: running}, 400, "not between", 0},
	} {
		status, text := send(t, serve(t, row.world), http.MethodGet, base+"virtualmachineinstances/vm/"+path, "")
		if status != row.status || !strings.Contains(text, row.want) || len(row.world.asked) != row.asked {
			t.Errorf("%.40s: got %d %s, asked %q", path, status, text, row.world.asked)
		}
	}
}
