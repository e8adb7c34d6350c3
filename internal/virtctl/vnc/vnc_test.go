package vnc

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// screen returns an API server whose machine web has a screen that says what RFB says first, and then what is sent to it.
func screen(t *testing.T) *kube.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/namespaces/team/virtualmachineinstances/web/vnc") {
			http.NotFound(w, r)
			return
		}
		upgrader := websocket.Upgrader{Subprotocols: []string{"plain.kubevirt.io"}}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.WriteMessage(websocket.BinaryMessage, []byte("RFB 003.008\n"))
		for {
			_, message, err := conn.ReadMessage()
			if err != nil {
				return
			}
			_ = conn.WriteMessage(websocket.BinaryMessage, message)
		}
	}))
	t.Cleanup(server.Close)
	c, err := kube.New(&rest.Config{Host: server.URL}, "team")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// viewer puts a program of that name on the PATH, alone: it speaks with the screen as a viewer would, and leaves what came and where
// it was sent.
func viewer(t *testing.T, name string) (said string) {
	t.Helper()
	dir := t.TempDir()
	said = filepath.Join(dir, "said")
	script := "#!/bin/bash\nat=\"${1#vnc://}\"\nexec 3<>\"/dev/tcp/${at%:*}/${at##*:}\"\nread -r hello <&3\necho back >&3\nread -r answer <&3\n" +
		"echo \"$1 $hello $answer\" >" + said + "\n"
	if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil { // it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	return said
}

// TestViewer: the viewer that is installed is started with the screen's address in its own words, speaks with the guest's screen both
// ways, and the command ends when it does.
func TestViewer(t *testing.T) {
	for name, prefix := range map[string]string{"remote-viewer": "vnc://127.0.0.1:", "vncviewer": "127.0.0.1:"} {
		t.Run(name, func(t *testing.T) {
			c := screen(t)
			said := viewer(t, name)
			if err := Run(t.Context(), c, "web", Options{Address: "127.0.0.1"}, io.Discard); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(said)
			if err != nil || !strings.HasPrefix(string(text), prefix) || !strings.HasSuffix(string(text), " RFB 003.008 back\n") {
				t.Errorf("the viewer left %q, %v", text, err)
			}
		})
	}
}

// TestNoViewer: where none is installed, that is said, with what to do; a machine without a screen says so too.
func TestNoViewer(t *testing.T) {
	c := screen(t)
	t.Setenv("PATH", t.TempDir())
	err := Run(t.Context(), c, "web", Options{Address: "127.0.0.1"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "could not find remote-viewer or vncviewer binary in $PATH; with --proxy-only any viewer can be used") {
		t.Errorf("without a viewer: %v", err)
	}
	var out bytes.Buffer
	if err := Run(t.Context(), c, "other", Options{Address: "127.0.0.1", ProxyOnly: true}, &out); err == nil || out.Len() > 0 {
		t.Errorf("a machine that is not there: %v %s", err, out.String())
	}
}
