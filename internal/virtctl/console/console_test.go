package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"github.com/berth-vm/berth/internal/virtctl/stream"
)

// server returns an API server that has one console: it greets, and answers everything in capitals until it hears "off".
func server(t *testing.T) *rest.Config {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"you may not"}`)
			return
		}
		if r.URL.Path != "/base/console" {
			http.NotFound(w, r)
			return
		}
		upgrader := websocket.Upgrader{Subprotocols: []string{stream.Protocol}}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.WriteMessage(websocket.BinaryMessage, []byte("hello;"))
		for {
			_, text, err := conn.ReadMessage()
			if err != nil {
				return
			}
			_ = conn.WriteMessage(websocket.BinaryMessage, []byte(strings.ToUpper(string(text))))
			if strings.Contains(string(text), "off") {
				_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL + "/base", BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// typist types each line when it has seen the answer to the one before.
type typist struct {
	lines []string
	seen  chan string
}

func (y *typist) Read(p []byte) (int, error) {
	<-y.seen
	if len(y.lines) == 0 {
		return 0, io.EOF
	}
	n := copy(p, y.lines[0])
	y.lines = y.lines[1:]
	return n, nil
}

func (y *typist) Write(p []byte) (int, error) {
	y.seen <- string(p)
	return len(p), nil
}

func session(t *testing.T, lines ...string) string {
	t.Helper()
	conn, err := dial(t.Context(), server(t), "console")
	if err != nil {
		t.Fatal(err)
	}
	y := &typist{lines: lines, seen: make(chan string, 10)}
	var out strings.Builder
	if err := Join(t.Context(), conn, y, io.MultiWriter(&out, y)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSession(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"the guest ends":       {[]string{"ls;", "off;"}, "hello;LS;OFF;"},
		"the user leaves":      {[]string{"ls;", "\x1d"}, "hello;LS;"},
		"nothing more to type": {[]string{"ls;off;"}, "hello;LS;OFF;"},
	} {
		if got := session(t, c.lines...); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestLeavingSendsNothing: what is typed before the key arrives, the key and what is after it do not.
func TestLeavingSendsNothing(t *testing.T) {
	got := session(t, "a\x1doff;")
	if strings.Contains(got, "OFF") {
		t.Errorf("the guest heard %q", got)
	}
}

func TestRefused(t *testing.T) {
	stranger, lost := server(t), server(t)
	stranger.BearerToken = "guess"
	if _, err := dial(t.Context(), stranger, "console"); err == nil || err.Error() != "open the console: you may not" {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := dial(t.Context(), lost, "elsewhere"); err == nil || !strings.Contains(err.Error(), "404 page not found") {
		t.Errorf("no console: %v", err)
	}
}
